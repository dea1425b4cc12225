"""docs/encoder-graphs.md names tests that exist, and says of each pitfall where it is tested."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TEXT = (PROJECT / "docs" / "encoder-graphs.md").read_text(encoding="utf-8")
GPU = PROJECT / "tests" / "gpu" / "test_gpu_encoder_graphs.py"


def names_of_tests(*files: Path) -> set[str]:
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)}


ON_CPU, ON_GPU = names_of_tests(*Path(__file__).parent.glob("test_*.py")), names_of_tests(GPU)


def test_every_test_that_the_document_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 10
    assert named <= ON_CPU | ON_GPU


@pytest.mark.parametrize("number", range(1, 17))
def test_each_pitfall_is_tested_where_the_document_says(number: int) -> None:
    row = re.search(rf"^\| 1\.{number} \|.*\| (?P<places>[CPUG, ]+) \|$", TEXT, re.M)
    assert row, f"there is no row 1.{number}"
    prefix = f"test_pitfall_1_{number:02}_"
    places = {
        place for place, tests in (("CPU", ON_CPU), ("GPU", ON_GPU)) if any(test.startswith(prefix) for test in tests)
    }
    assert places == set(row["places"].split(", "))


def test_every_module_of_the_runtime_is_in_the_document() -> None:
    modules = {path.name for path in (PROJECT / "src" / "foveate" / "graphs").glob("*.py")} - {"__init__.py"}
    assert {module for module in modules if f"`{module}`" not in TEXT} == set()

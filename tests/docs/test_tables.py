"""Tables in the documents are those that the committed results make."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DOCUMENTS = ("README.md", "docs/benchmarks.md", "docs/accuracy.md", "src/foveate/demo/README.md")


@pytest.fixture
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", BENCHMARKS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_tables_are_current(tables, project, name):
    """`python benchmarks/tables.py` makes them so."""
    text = (project / name).read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert tables.filled(text) == text


def test_all_documents_with_tables_are_written(tables, project):
    assert {path.relative_to(project).as_posix() for path in tables.DOCUMENTS} == set(DOCUMENTS)


def test_the_marks_of_an_evaluation_become_a_table(tables, monkeypatch, tmp_path):
    marks = {"shapes": {"questions": 4, "exact_match": 0.75, "rouge_l": 0.8125}}
    report = {"scores": {"foveate": marks, "transformers (sdpa)": marks}, "differences": []}
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "evaluation-300.json").write_text(json.dumps(report))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    text = "before\n<!-- table: accuracy -->\nold\n<!-- end -->\nafter\n"
    head, _, row = tables.accuracy_table().splitlines()
    assert head.split(" | ")[2:4] == ["foveate, exact match", "foveate, ROUGE-L"]
    assert row == "| shapes | 4 | 75.0 % | 81.2 % | 75.0 % | 81.2 % |"
    assert tables.filled(text) == text.replace("old", tables.accuracy_table())


def test_a_result_that_is_not_there_is_told_in_place_of_its_table(tables, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    text = "<!-- table: changed answers -->\nold\n<!-- end -->\n"
    assert tables.filled(text) == text.replace("old", tables.NOT_MEASURED)


def test_a_table_between_bare_marks_is_made_and_what_follows_stays(tables, monkeypatch):
    monkeypatch.setitem(tables.TABLES, "some", lambda: "| a |")
    text = "<!-- table: some -->\n<!-- end -->\n\n## Next\n\n<!-- table: some -->\nold\n<!-- end -->\n"
    made = "<!-- table: some -->\n| a |\n<!-- end -->\n\n## Next\n\n<!-- table: some -->\n| a |\n<!-- end -->\n"
    assert tables.filled(text) == made
    assert tables.filled(made) == made

"""The wheel that people install."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import foveate


@pytest.fixture(scope="module")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory):
    """The wheel that `pip wheel` builds of this checkout, opened."""
    folder = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", str(project), "--no-deps", "--quiet", "--disable-pip-version-check", "-w", str(folder)]
    built = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def metadata_folder() -> str:
    return f"foveate-{foveate.__version__}.dist-info/"


def test_it_holds_the_package_and_nothing_else(wheel):
    strays = [name for name in wheel.namelist() if not name.startswith(("foveate/", metadata_folder()))]
    assert strays == []


def test_it_holds_every_file_of_the_package(wheel, project):
    source = project / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name and ".egg-info" not in name}
    assert {"foveate/py.typed", "foveate/demo/config.json", "foveate/demo/model.safetensors"} <= wanted
    assert wanted <= set(wheel.namelist())


def test_it_brings_the_command_and_the_licence(wheel):
    entries = wheel.read(metadata_folder() + "entry_points.txt").decode()
    assert "foveate = foveate.cli:main" in entries
    assert metadata_folder() + "licenses/LICENSE" in wheel.namelist()


def test_its_metadata_names_the_licence_the_python_and_the_readme(wheel, project):
    metadata = Parser().parsestr(wheel.read(metadata_folder() + "METADATA").decode("utf-8"))
    assert (metadata["Name"], metadata["Version"]) == ("foveate", foveate.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert metadata.get_payload().strip() == (project / "README.md").read_text(encoding="utf-8").strip()

"""Where the project's own files are."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project() -> Path:
    """The checkout."""
    return Path(__file__).parents[2]


@pytest.fixture
def reader(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in that has what a reader of the documents has: the example pictures."""
    (tmp_path / "examples").symlink_to(project / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path

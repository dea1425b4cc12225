"""Where the project's own files are."""

from pathlib import Path

import pytest

from foveate.checkpoints import new_checkpoint


@pytest.fixture(scope="session")
def project() -> Path:
    """The checkout."""
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint that `make demo` makes."""
    return new_checkpoint(tmp_path_factory.mktemp("checkpoint") / "demo-model")


@pytest.fixture
def reader(project: Path, demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in that has what a reader of the documents has: example pictures and the demo model."""
    (tmp_path / "examples").symlink_to(project / "examples")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "demo-model").symlink_to(demo_model)
    monkeypatch.chdir(tmp_path)
    return tmp_path

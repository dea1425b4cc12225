"""A small checkpoint, made once, and copies of it to change."""

import shutil
from pathlib import Path

import pytest

import foveate
from foveate.checkpoints import new_checkpoint


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder that no test changes."""
    return new_checkpoint(tmp_path_factory.mktemp("tiny") / "model", "tiny")


@pytest.fixture(scope="session")
def tiny_vlm(tiny: Path) -> foveate.VLM:
    """The checkpoint, loaded on the CPU in float32."""
    return foveate.load(tiny, device="cpu")


@pytest.fixture
def tiny_copy(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint folder for one test to change."""
    return shutil.copytree(tiny, tmp_path / "copy")

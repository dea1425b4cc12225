"""The training scripts are plain files in `training/`, which import each other by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[2] / "training"


@pytest.fixture(autouse=True, scope="session")
def training_scripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TRAINING))
        yield
    for name in ("export", "glyphs", "layout", "lessons", "muon", "network", "padding", "run", "stream", "train"):
        sys.modules.pop(name, None)

"""A small model, and pictures for it."""

from collections.abc import Callable

import numpy as np
import pytest

import foveate
from foveate.checkpoints import new_checkpoint


@pytest.fixture(scope="session")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> foveate.VLM:
    """A small model, loaded on the CPU in float32."""
    return foveate.load(new_checkpoint(tmp_path_factory.mktemp("engine") / "model", "tiny"), device="cpu")


@pytest.fixture(scope="session")
def picture() -> Callable[[int], np.ndarray]:
    """Return a function from a number to a small picture of noise."""

    def make(number: int) -> np.ndarray:
        return np.random.default_rng(number).integers(1, 256, (64, 64, 3), dtype=np.uint8)

    return make


@pytest.fixture(scope="session")
def black() -> np.ndarray:
    """The picture that `PickyEncoder` does not take."""
    return np.zeros((64, 64, 3), dtype=np.uint8)

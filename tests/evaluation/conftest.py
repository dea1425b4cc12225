"""The model that ships with Foveate, loaded once for each process of the tests."""

import pytest

import foveate
from foveate.evaluation.predictors import FoveatePredictor


@pytest.fixture(scope="session")
def demo() -> FoveatePredictor:
    """On a CPU, in float32."""
    return FoveatePredictor(foveate.load(device="cpu"), "foveate")

"""A shrunk LFM2-VL on the CPU, with a few small graphs that run through the eager backend."""

import pytest

from foveate.checkpoints import layout, shrunk
from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.testing import random_vlm
from foveate.vlm import VLM

COMPILATION_CONFIG = {"cudagraph_mm_encoder": True, "encoder_cudagraph_token_budgets": [64, 128, 320]}


@pytest.fixture(scope="session")
def vlm() -> VLM:
    """A model whose encoder has graphs of 64, 128 and 320 tokens."""
    return random_vlm(
        shrunk(layout("LFM2.5-VL-450M")), device="cpu", dtype="float32", compilation_config=COMPILATION_CONFIG
    )


@pytest.fixture(scope="session")
def graphs(vlm: VLM) -> GraphImageEncoder:
    """The encoder of that model, all of whose graphs passed their start-up check."""
    assert isinstance(vlm.encoder, GraphImageEncoder)
    assert vlm.encoder.manager.stats.graphs_switched_off == 0
    return vlm.encoder


@pytest.fixture(scope="session")
def exact_vlm() -> VLM:
    """The same weights in float64, without graphs."""
    vlm = random_vlm(shrunk(layout("LFM2.5-VL-450M")), device="cpu", dtype="float32")
    vlm.model.double()
    return vlm

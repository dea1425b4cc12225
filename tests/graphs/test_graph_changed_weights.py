"""Graphs read the weights where they were at the capture: new numbers there are followed, other places refused."""

import pytest
import torch

import foveate
from foveate.errors import ConfigurationError
from foveate.graphs import EncoderCudaGraphManager, EncoderGraphSettings
from foveate.models.lfm2_vl.encoder_graphs import Lfm2VlEncoderGraphs
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape


@pytest.fixture
def encoder():
    return foveate.load(device="cpu", compilation_config={"cudagraph_mm_encoder": False}).model


@pytest.fixture
def manager(encoder):
    return captured(encoder)


def captured(model):
    graphs = Lfm2VlEncoderGraphs(model.encoder, model.config)
    manager = EncoderCudaGraphManager(graphs, torch.device("cpu"), EncoderGraphSettings(True, (256,)), strict=True)
    manager.capture()
    return manager


def batch(model):
    width = model.config.vision.patch_width
    patches = torch.rand(256, width, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return ImageBatch(patches, (TileShape(16, 16),), (1,))


def test_weights_loaded_in_place_are_followed(encoder, manager):
    before = manager.execute(batch(encoder))[0]
    encoder.encoder.load_state_dict({name: 1.5 * weight for name, weight in encoder.encoder.state_dict().items()})
    after = manager.execute(batch(encoder))[0]
    assert not torch.allclose(after, before)
    assert torch.allclose(after, encoder.encoder.encode(batch(encoder)), atol=1e-4)


def test_float8_weights_follow_too(encoder):
    encoder.encoder.use_fp8()
    manager = captured(encoder)
    before = manager.execute(batch(encoder))[0]
    encoder.encoder.load_state_dict({name: 1.5 * weight for name, weight in encoder.encoder.state_dict().items()})
    after = manager.execute(batch(encoder))[0]
    assert not torch.allclose(after, before)
    assert torch.equal(after, captured(encoder).execute(batch(encoder))[0])


def test_a_move_that_moves_nothing_is_no_change(encoder, manager):
    before = manager.execute(batch(encoder))[0]
    encoder.to("cpu")
    assert torch.equal(manager.execute(batch(encoder))[0], before)


@pytest.mark.parametrize("how", ["cast", "assigned"])
def test_weights_that_lie_elsewhere_are_refused_with_what_to_do(encoder, manager, how):
    manager.execute(batch(encoder))
    if how == "cast":
        encoder.to(torch.float64)
    else:
        copies = {name: weight.clone() for name, weight in encoder.encoder.state_dict().items()}
        encoder.encoder.load_state_dict(copies, assign=True)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"moved, cast or replaced.*load the model anew"):
            manager.execute(batch(encoder))

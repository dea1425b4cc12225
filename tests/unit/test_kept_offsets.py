"""The sums of the tower's biases are kept between runs: what is noticed, where they lie, and when they are not kept."""

import copy

import pytest
import torch

import foveate

SHAPES = torch.tensor([[8, 8]])


@pytest.fixture
def encoder():
    return foveate.load(device="cpu", compilation_config={"cudagraph_mm_encoder": False}).model.encoder


def run(encoder):
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(64, encoder.tower.patch_embedding.weight.shape[1], generator=generator) * 2 - 1
    return encoder(rows, SHAPES)


def test_they_are_summed_up_once_and_lie_among_the_addresses(encoder, monkeypatch):
    summed = []
    offsets = type(encoder.tower).offsets
    monkeypatch.setattr(type(encoder.tower), "offsets", lambda tower: summed.append(1) or offsets(tower))
    first = run(encoder)
    assert torch.equal(run(encoder), first)
    assert summed == [1]
    assert encoder.weight_addresses()[-1] == encoder.tower.kept_offsets.data_ptr()


def test_weights_that_are_loaded_change_them_where_they_lie(encoder):
    run(encoder)
    before, address = encoder.tower.kept_offsets.clone(), encoder.weight_addresses()
    with torch.inference_mode():
        encoder.load_state_dict({name: 2 * weight for name, weight in encoder.state_dict().items()})
        run(encoder)
    assert torch.allclose(encoder.tower.kept_offsets, 2 * before)
    assert encoder.weight_addresses() == address
    encoder.load_state_dict(encoder.state_dict())
    run(encoder)


def test_they_stay_float32_in_another_type_and_move_with_the_weights(encoder):
    before = run(encoder)
    encoder.double().refresh()
    assert encoder.tower.kept_offsets.dtype == torch.float32
    encoder.float().refresh()
    assert torch.equal(run(encoder), before)
    encoder.to("meta").refresh()
    assert encoder.tower.kept_offsets.device.type == "meta"


def test_a_copy_has_its_own(encoder):
    expected = run(encoder)
    other = copy.deepcopy(encoder)
    other.load_state_dict({name: 2 * weight for name, weight in other.state_dict().items()})
    run(other)
    assert torch.equal(run(encoder), expected)


def test_an_encoder_in_training_sums_up_in_every_run_with_gradients(encoder):
    run(encoder)
    encoder.requires_grad_(True)
    with torch.no_grad():
        encoder.tower.layers[0].out.bias.add_(0.5)
        changed = run(encoder)
    encoder.requires_grad_(False)
    encoder.load_state_dict(encoder.state_dict())
    assert torch.equal(run(encoder), changed)
    encoder.tower.layers[0].out.bias.requires_grad_(True)
    assert encoder.tower._offsets_to_use().requires_grad

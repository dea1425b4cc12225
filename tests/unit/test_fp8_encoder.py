"""The encoder in float8 as an option, on the CPU through the twins: its error, its refusals, and changed weights."""

import logging

import pytest
import torch
from torch.nn import functional as F

import foveate
from foveate.errors import ConfigurationError
from foveate.kernels.attention import packed_attention_reference
from foveate.kernels.fp8 import quantise_reference
from foveate.models.lfm2_vl.fp8_layers import fp8_layers
from foveate.models.lfm2_vl.layout import packed_layout
from tests.folded_tower import plain_tower, random_tower, run_tower, tower_config

CONFIG = tower_config(hidden_size=64, intermediate_size=128, num_layers=4, num_heads=4)
SHAPES = torch.tensor([[4, 4], [2, 6], [8, 8]])


@pytest.fixture(scope="module")
def patches():
    return torch.randn(92, 48, generator=torch.Generator().manual_seed(1))


def error(out, exact):
    return float((out - exact).norm() / exact.norm())


def rounded(rows):
    return quantise_reference(rows).wide()


def plain_fp8_tower(tower, patches, tile_shapes):
    """The plain tower with every operand of a layer's products rounded to float8, as it is written down."""
    layout = packed_layout(tile_shapes, patches.shape[0], 2)
    hidden = tower.patch_embedding(patches) + tower.position(layout.patch_grid)

    def product(linear, rows):
        return F.linear(rounded(rows), rounded(linear.weight), linear.bias)

    for layer in tower.layers:
        qkv = product(layer.qkv, layer.attention_norm(hidden)).unflatten(-1, (3, layer.num_heads, layer.head_size))
        hidden = hidden + product(layer.out, packed_attention_reference(*qkv.unbind(1), layout.bounds))
        inner = F.gelu(product(layer.fc1, layer.mlp_norm(hidden)), approximate="tanh")
        hidden = hidden + product(layer.fc2, inner)
    return tower.norm(hidden)


def test_float8_is_as_far_from_the_exact_tower_as_float8_written_down_plainly(patches):
    tower = random_tower(CONFIG, bias_scale=0.3)
    exact, plain = plain_tower(tower, patches, SHAPES), plain_fp8_tower(tower, patches, SHAPES)
    tower.fp8_layers = fp8_layers(list(tower.layers))
    ours = run_tower(tower, patches, SHAPES)
    assert 0.005 < error(ours, exact) <= 1.2 * error(plain, exact)
    # The same roundings but for those that a last bit moves.
    assert error(ours, plain) <= 0.5 * error(plain, exact)


def test_the_log_says_that_it_is_not_verified(caplog):
    with caplog.at_level(logging.WARNING):
        fp8_layers(list(random_tower(CONFIG, bias_scale=0.3).layers))
    assert "not verified on released checkpoints" in caplog.text


@pytest.fixture
def model():
    return foveate.load(device="cpu", encoder_dtype="fp8").model


def run(encoder):
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(64, encoder.tower.patch_embedding.weight.shape[1], generator=generator) * 2 - 1
    return encoder(rows, torch.tensor([[8, 8]]))


def test_load_runs_the_encoder_in_float8_and_its_features_stay_near(model):
    exact = run(foveate.load(device="cpu").model.encoder)
    assert model.encoder.dtype_name == "fp8"
    assert 1e-4 < error(run(model.encoder), exact) < 0.3


def test_weights_that_are_loaded_later_are_followed(model):
    encoder = model.encoder
    changed = {name: 1.5 * weight for name, weight in encoder.state_dict().items()}
    before = run(encoder)
    addresses = [weight.values.data_ptr() for layer in encoder.tower.fp8_layers for weight in layer.weights.values()]
    encoder.load_state_dict(changed)
    after = run(encoder)
    assert error(after, before) > 0.1
    again = foveate.load(device="cpu").model.encoder
    again.load_state_dict(changed)
    again.use_fp8()
    assert torch.equal(after, run(again))
    assert addresses == [
        weight.values.data_ptr() for layer in encoder.tower.fp8_layers for weight in layer.weights.values()
    ]


def test_another_activation_is_refused_with_what_to_change():
    tower = random_tower(CONFIG, bias_scale=0.3)
    tower.layers[0].activation = F.relu
    with pytest.raises(ConfigurationError, match=r"activation gelu_pytorch_tanh alone.*leave encoder_dtype at 'auto'"):
        fp8_layers(list(tower.layers))


def test_another_encoder_dtype_is_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match="encoder_dtype is 'int4'; allowed are auto and fp8"):
        foveate.load(device="cpu", encoder_dtype="int4")

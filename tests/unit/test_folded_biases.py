"""The tower's residual biases are added by the norms: the same numbers as where every bias stands by its product."""

import pytest
import torch

from tests.folded_tower import in_bfloat16, plain_tower, random_tower, run_tower, tower_config

CONFIG = tower_config(hidden_size=64, intermediate_size=128, num_layers=6, num_heads=4)
SHAPES = torch.tensor([[4, 4], [2, 6], [8, 8]])


@pytest.fixture(scope="module")
def patches():
    return torch.randn(92, 48, generator=torch.Generator().manual_seed(1)).bfloat16().float()


def error(out, exact):
    return float((out.float() - exact).norm() / exact.norm())


@pytest.mark.parametrize("bias_scale", [0.0, 0.1, 1.0, 4.0])
def test_in_float32_the_folded_tower_is_the_plain_one(patches, bias_scale):
    tower = random_tower(CONFIG, bias_scale=bias_scale)
    assert error(run_tower(tower, patches, SHAPES), plain_tower(tower, patches, SHAPES)) <= 1e-5


@pytest.mark.parametrize("bias_scale", [0.0, 0.1, 1.0])
def test_in_bfloat16_the_error_is_at_most_twice_that_of_the_plain_tower(patches, bias_scale):
    """With a scale of 1 each bias is as large as the branch it belongs to."""
    tower = random_tower(CONFIG, bias_scale=bias_scale)
    exact, low = plain_tower(tower, patches, SHAPES), in_bfloat16(tower)
    ours, plain = (error(run(low, patches, SHAPES), exact) for run in (run_tower, plain_tower))
    assert 0 < ours <= 2 * plain


def test_a_bias_that_is_changed_in_place_is_followed(patches):
    tower = random_tower(CONFIG, bias_scale=0.1)
    before = run_tower(tower, patches, SHAPES)
    tower.layers[2].fc2.bias.add_(torch.linspace(-1, 1, 64))
    after = run_tower(tower, patches, SHAPES)
    assert error(after, plain_tower(tower, patches, SHAPES)) <= 1e-5
    assert error(after, before) > 1e-3


def test_the_input_is_not_written_to(patches):
    tower, copy = random_tower(CONFIG, bias_scale=0.1), patches.clone()
    run_tower(tower, patches, SHAPES)
    assert torch.equal(patches, copy)

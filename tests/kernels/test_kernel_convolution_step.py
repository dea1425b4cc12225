"""The decode step of the short convolution, against its twin and the packed convolution."""

import sys

import pytest
import torch

from foveate.kernels.short_convolution import convolution_index, short_convolution
from foveate.kernels.short_convolution_step import (
    short_convolution_step,
    short_convolution_step_reference,
    short_convolution_step_triton,
)
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

SLOTS = 6


def arguments(sequences, width, taps, dtype, device, *, has_bias=False):
    gates = random(sequences, 3 * width, dtype=dtype, device=device)
    states = random(SLOTS, taps - 1, width, dtype=dtype, device=device, seed=1)
    slots = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(2))[:sequences].to(device)
    weight = random(width, taps, dtype=dtype, device=device, seed=3)
    return gates, states, slots, weight, random(width, dtype=dtype, device=device, seed=4) if has_bias else None


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("sequences", "width", "taps"), [(1, 16, 3), (4, 24, 3), (3, 300, 4), (2, 1024, 3), (2, 16, 2)]
)
def test_the_step_and_the_states_are_those_of_plain_torch(device, sequences, width, taps, dtype, has_bias):
    gates, states, slots, weight, bias = arguments(sequences, width, taps, dtype, device, has_bias=has_bias)
    twin_states, wide_states = states.clone(), states.clone().float()
    out = short_convolution_step_triton(gates, states, slots, weight, bias)
    twin = short_convolution_step_reference(gates, twin_states, slots, weight, bias)
    wide_bias = None if bias is None else bias.float()
    wide = short_convolution_step_reference(gates.float(), wide_states, slots, weight.float(), wide_bias)
    if dtype == torch.float32:
        assert relative_error(out, twin) <= 1e-6
    else:
        assert is_as_right(out, twin, wide)
    assert torch.equal(states, twin_states)


@pytest.mark.parametrize("run", [short_convolution_step_reference, short_convolution_step_triton])
def test_steps_in_a_row_are_the_packed_convolution_of_the_whole_sequence(device, run):
    width, taps, steps = 16, 3, 7
    _, states, _, weight, _ = arguments(1, width, taps, torch.float32, device)
    states.zero_()
    gates = random(steps, 3 * width, dtype=torch.float32, device=device)
    before, after, content = gates.chunk(3, -1)
    index = convolution_index([steps], taps, device)
    mixed, last = short_convolution(before * content, states[2:3].clone(), weight, None, index)
    slots = torch.tensor([2], device=device)
    out = torch.cat([run(gates[step : step + 1], states, slots, weight, None) for step in range(steps)])
    assert relative_error(out, after * mixed) <= 1e-6
    assert torch.equal(states[2:3], last)


def test_states_of_other_slots_are_left_alone(device):
    gates, states, slots, weight, bias = arguments(3, 24, 3, torch.float32, device)
    before = states.clone()
    short_convolution_step_triton(gates, states, slots, weight, bias)
    others = [slot for slot in range(SLOTS) if slot not in slots.tolist()]
    assert torch.equal(states[others], before[others])
    assert not torch.equal(states, before)


def test_no_sequences_give_no_rows(device):
    assert short_convolution_step_triton(*arguments(0, 24, 3, torch.float32, device)).shape == (0, 24)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    gates, states, *rest = arguments(3, 24, 3, torch.float32, device)
    chosen = short_convolution_step_triton if device.type == "cuda" else short_convolution_step_reference
    expected = chosen(gates, states.clone(), *rest)
    assert torch.equal(short_convolution_step(gates, states, *rest), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gates": torch.zeros(3, 71)}, r"gates must be \[3, 72\].*got \[3, 71\]"),
        ({"states": torch.zeros(6, 3, 24)}, r"states must be \[6, 2, 24\].*got \[6, 3, 24\]"),
        ({"states": torch.zeros(24, 2, 6).mT.transpose(0, 1)[:6]}, "states must be"),
        ({"slots": torch.zeros(3)}, "slots integers: got torch.float32"),
    ],
)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(change, message):
    names = ("gates", "states", "slots", "weight", "bias")
    given = dict(zip(names, arguments(3, 24, 3, torch.float32, torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        short_convolution_step_triton(**(given | change))

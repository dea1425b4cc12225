"""The gated short convolution over packed new rows, against its twin, the decode step and a plain loop."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.kernels.packed_convolution import (
    packed_convolution,
    packed_convolution_reference,
    packed_convolution_triton,
)
from foveate.kernels.short_convolution_step import short_convolution_step_reference
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

DUMMY = 0
"""The slot of sequences that are not used."""
NAMES = ("gates", "states", "slots", "bounds", "weight", "bias")


def packed(lengths, width, taps, dtype, device, *, has_bias=False, unused=0, padding=0):
    """Sequences of these new rows; NaN in the padding and in the state that nobody owns."""
    slots = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(2)) + 1
    slots = torch.cat([slots, torch.full((unused,), DUMMY)])
    bounds = torch.tensor([0, *lengths] + [0] * unused, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    gates = random(sum(lengths) + padding, 3 * width, dtype=dtype, device=device)
    gates[sum(lengths) :] = float("nan")
    states = random(len(lengths) + 2, taps - 1, width, dtype=dtype, device=device, seed=1)
    states[DUMMY] = float("nan")
    weight = random(width, taps, dtype=dtype, device=device, seed=3)
    bias = random(width, dtype=dtype, device=device, seed=4) if has_bias else None
    return gates, states, slots.to(device), bounds.to(device), weight, bias


def row_by_row(gates, states, slots, bounds, weight, bias):
    """One decode step for every row."""
    out, edges = gates.new_zeros(len(gates), len(weight)), bounds.tolist()
    for sequence in range(len(slots)):
        for row in range(edges[sequence], edges[sequence + 1]):
            own = slots[sequence : sequence + 1]
            out[row] = short_convolution_step_reference(gates[row : row + 1], states, own, weight, bias)[0]
    return out


def same(left, right):
    """Equal, with NaN in the same places."""
    return torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num())


@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(4, 40)), min_size=1, max_size=5),
    taps=st.integers(1, 5),
    width=st.sampled_from([16, 24, 130]),
    unused=st.integers(0, 2),
    padding=st.integers(0, 40),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_chunks_are_the_decode_steps_of_their_rows(device, lengths, taps, width, unused, padding):
    gates, states, *rest = packed(lengths, width, taps, torch.float32, device, unused=unused, padding=padding)
    stepped = states.clone()
    expected = row_by_row(gates, stepped, *rest)
    for run in (packed_convolution_triton, packed_convolution_reference):
        moved = states.clone()
        out = run(gates, moved, *rest)
        assert relative_error(out, expected) <= 1e-6
        assert not out[sum(lengths) :].any()
        assert same(moved, stepped)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("width", "taps"), [(64, 3), (300, 4), (1024, 3), (16, 2)])
def test_the_rows_and_the_states_are_those_of_plain_torch(device, width, taps, dtype, has_bias):
    lengths = [20, 1, 2, 3, 33, 16, 1]
    gates, states, slots, bounds, weight, bias = packed(
        lengths, width, taps, dtype, device, has_bias=has_bias, unused=2, padding=19
    )
    twin_states, wide_states = states.clone(), states.clone().float()
    out = packed_convolution_triton(gates, states, slots, bounds, weight, bias)
    twin = packed_convolution_reference(gates, twin_states, slots, bounds, weight, bias)
    wide_bias = None if bias is None else bias.float()
    wide = packed_convolution_reference(gates.float(), wide_states, slots, bounds, weight.float(), wide_bias)
    if dtype == torch.float32:
        assert relative_error(out, twin) <= 1e-6
    else:
        assert is_as_right(out, twin, wide)
        assert (out != twin).float().mean() < 0.01
    assert same(states, twin_states)
    assert not out[sum(lengths) :].any()


def test_states_of_other_slots_and_of_unused_sequences_are_left_alone(device):
    gates, states, slots, bounds, weight, bias = packed([5, 1], 24, 3, torch.float32, device, unused=1, padding=4)
    states[DUMMY] = 7.0
    before = states.clone()
    packed_convolution_triton(gates, states, slots, bounds, weight, bias)
    assert torch.equal(states[[DUMMY, 3]], before[[DUMMY, 3]])
    assert (states[slots[:2]] != before[slots[:2]]).any((1, 2)).all()


def test_a_broken_sequence_does_not_reach_its_neighbours(device):
    gates, states, *rest = packed([20, 5, 20], 24, 3, torch.float32, device)
    clean = packed_convolution_triton(gates, states.clone(), *rest)
    gates[20:25] = float("nan")
    out = packed_convolution_triton(gates, states, *rest)
    assert out[20:25].isnan().all()
    assert torch.equal(out[:20], clean[:20])
    assert torch.equal(out[25:], clean[25:])
    assert states[rest[0]].isnan().any(1).any(1).tolist() == [False, True, False]


@pytest.mark.parametrize("run", [packed_convolution_reference, packed_convolution_triton])
def test_chunks_give_the_bits_of_the_whole_sequence(device, run):
    gates, states, slots, bounds, *rest = packed([40], 24, 3, torch.bfloat16, device)
    chunked = states.clone()
    whole = run(gates, states, slots, bounds, *rest)
    parts = []
    for begin, end in ((0, 1), (1, 2), (2, 4), (4, 21), (21, 40)):
        own = torch.tensor([0, end - begin], dtype=torch.int32, device=device)
        parts.append(run(gates[begin:end], chunked, slots, own, *rest))
    assert torch.equal(torch.cat(parts), whole)
    assert same(chunked, states)


@pytest.mark.parametrize("run", [packed_convolution_reference, packed_convolution_triton])
def test_without_any_sequence_in_use_all_rows_are_zeros(device, run):
    gates, states, *rest = packed([], 24, 3, torch.float32, device, unused=3, padding=20)
    before = states.clone()
    assert torch.equal(run(gates, states, *rest), torch.zeros(20, 24, device=device))
    assert same(states, before)


@pytest.mark.parametrize("run", [packed_convolution_reference, packed_convolution_triton])
def test_no_tokens_give_no_rows(device, run):
    assert run(*packed([0], 24, 3, torch.float32, device)).shape == (0, 24)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    gates, states, *rest = packed([20, 3], 24, 3, torch.float32, device, padding=4)
    chosen = packed_convolution_triton if device.type == "cuda" else packed_convolution_reference
    expected = chosen(gates, states.clone(), *rest)
    assert torch.equal(packed_convolution(gates, states, *rest), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gates": torch.zeros(9, 71)}, r"gates must be \[9, 72\].*got \[9, 71\]"),
        ({"gates": torch.zeros(72, 9).t()}, r"gates must be \[9, 72\], contiguous: .*strides \(1, 9\)"),
        ({"states": torch.zeros(4, 3, 24)}, r"states must be \[4, 2, 24\].*got \[4, 3, 24\]"),
        ({"states": torch.zeros(4, 2, 24).half()}, "one type: got torch.float32, torch.float16"),
        ({"slots": torch.zeros(2, dtype=torch.int32)}, "slots must be int64, bounds int32: got torch.int32"),
        ({"bounds": torch.zeros(3, dtype=torch.int64)}, "bounds int32: got torch.int64, torch.int64"),
        ({"bounds": torch.zeros(2, dtype=torch.int32)}, r"bounds must be \[3\].*got \[2\]"),
        ({"weight": torch.zeros(3, 24).t()}, r"weight must be \[width, taps\], contiguous: .*strides \(1, 24\)"),
        ({"bias": torch.zeros(23)}, r"bias must be \[24\].*got \[23\]"),
        ({"bounds": torch.zeros(3, dtype=torch.int32, device="meta")}, "on one device: got .*cpu.*meta"),
    ],
)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(change, message):
    right = dict(zip(NAMES, packed([5, 4], 24, 3, torch.float32, torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        packed_convolution_triton(**(right | change))

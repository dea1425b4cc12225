"""The attention kernel against its twin and against a softmax in float64."""

import importlib
import sys
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import foveate.kernels
from foveate.errors import ConfigurationError, DeviceError
from foveate.kernels.attention import attention, packed_attention, packed_attention_reference
from foveate.kernels.attention_tiles import AttentionTiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

SMALL = AttentionTiles(block_rows=16, block_columns=16, warps=4, stages=2)


def packed(lengths, padding, heads, head_size, dtype, device, seed=0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value as views of one fused projection, the padding rows NaN, and the bounds."""
    real = sum(lengths)
    generator = torch.Generator().manual_seed(seed)
    fused = torch.randn(real + padding, 3 * heads * head_size, generator=generator).to(device, dtype)
    fused[real:] = float("nan")
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
    query, key, value = (part.unflatten(1, (heads, head_size)) for part in fused.chunk(3, dim=1))
    return query, key, value, bounds


def exact(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
    """The definition in float64: softmax of the scaled products, sequence by sequence; zeros in the padding."""
    out = torch.zeros(query.shape, dtype=torch.float64, device=query.device)
    for begin, end in pairwise(bounds.tolist()):
        q, k, v = (tensor[begin:end].double().transpose(0, 1) for tensor in (query, key, value))
        scores = q @ k.transpose(1, 2) * query.shape[2] ** -0.5
        out[begin:end] = (scores.softmax(-1) @ v).transpose(0, 1)
    return out.flatten(1)


def relative_error(out: Tensor, reference: Tensor) -> float:
    return ((out.double() - reference).norm() / reference.norm().clamp_min(1e-30)).item()


@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    padding=st.integers(0, 40),
    head_size=st.sampled_from([16, 64, 72]),
    heads=st.integers(1, 2),
    tiles=st.sampled_from([None, SMALL, AttentionTiles(16, 32, 4, 3), AttentionTiles(32, 16, 4, 2)]),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_segmentation_gives_the_softmax_and_zeros_in_the_padding(device, lengths, padding, head_size, heads, tiles):
    query, key, value, bounds = packed(lengths, padding, heads, head_size, torch.float32, device)
    out = packed_attention(query, key, value, bounds, max(lengths), tiles=tiles)
    assert relative_error(out, exact(query, key, value, bounds)) <= 1e-6
    assert torch.equal(out[sum(lengths) :], torch.zeros_like(out[sum(lengths) :]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_size", [16, 64, 72, 128])
def test_the_error_in_low_precision_is_at_most_twice_that_of_plain_torch(device, head_size, dtype):
    query, key, value, bounds = packed([100, 37, 64], 9, 2, head_size, dtype, device)
    reference = exact(query, key, value, bounds)
    twin = packed_attention_reference(query, key, value, bounds)
    out = packed_attention(query, key, value, bounds, 100)
    assert relative_error(out, reference) <= 2 * relative_error(twin, reference)


@pytest.mark.parametrize(
    "lengths",
    [[1], [1, 1, 1], [16], [17], [15], [16, 16], [17, 16, 15], [32, 0, 0], [0, 0, 33], [0, 1, 0, 48, 0]],
    ids=str,
)
@pytest.mark.parametrize("padding", [0, 1, 16, 17])
def test_the_edges_of_a_block_are_right(device, lengths, padding):
    query, key, value, bounds = packed(lengths, padding, 2, 16, torch.float32, device)
    out = packed_attention(query, key, value, bounds, max(lengths), tiles=SMALL)
    assert relative_error(out, exact(query, key, value, bounds)) <= 1e-6
    assert not out[sum(lengths) :].any()


@pytest.mark.parametrize("slots", [0, 1, 3, 40])
def test_with_every_slot_empty_the_whole_output_is_zeros(device, slots):
    query, key, value, bounds = packed([0] * slots, 50, 2, 72, torch.float32, device)
    out = torch.full((50, 144), float("nan"), device=device)
    packed_attention(query, key, value, bounds, 0, out=out, tiles=SMALL)
    assert torch.equal(out, torch.zeros_like(out))


def test_no_rows_give_no_rows(device):
    query, key, value, bounds = packed([], 0, 2, 16, torch.float32, device)
    assert packed_attention(query, key, value, bounds, 0).shape == (0, 32)


def test_views_of_a_fused_projection_give_the_bits_of_copies(device):
    query, key, value, bounds = packed([40, 23], 7, 2, 72, torch.float32, device)
    copies = (tensor.contiguous() for tensor in (query, key, value))
    assert torch.equal(packed_attention(*copies, bounds, 40), packed_attention(query, key, value, bounds, 40))


def test_a_sequence_gets_the_same_bits_alone_and_in_any_company(device):
    query, key, value, bounds = packed([21, 40, 33], 7, 2, 72, torch.float32, device)
    together = packed_attention(query, key, value, bounds, 40, tiles=SMALL)
    alone = torch.tensor([0, 40], dtype=torch.int32, device=device)
    middle = (tensor[21:61] for tensor in (query, key, value))
    assert torch.equal(packed_attention(*middle, alone, 40, tiles=SMALL), together[21:61])


def test_a_broken_sequence_does_not_reach_its_neighbours(device):
    query, key, value, bounds = packed([20, 20, 20], 4, 2, 16, torch.float32, device)
    clean = packed_attention(query, key, value, bounds, 20, tiles=SMALL)
    value[20:40] = float("nan")
    out = packed_attention(query, key, value, bounds, 20, tiles=SMALL)
    assert out[20:40].isnan().all()
    assert torch.equal(out[:20], clean[:20])
    assert torch.equal(out[40:], clean[40:])


def test_rows_of_a_wider_buffer_are_written_in_place_and_nothing_else_is(device):
    query, key, value, bounds = packed([20, 13], 4, 2, 16, torch.float32, device)
    buffer = torch.full((39, 48), 7.0, device=device)
    out = packed_attention(query, key, value, bounds, 20, out=buffer[1:38, 8:40], tiles=SMALL)
    assert out.data_ptr() == buffer[1:38, 8:40].data_ptr()
    assert torch.equal(out, packed_attention(query, key, value, bounds, 20, tiles=SMALL))
    buffer[1:38, 8:40] = 7.0
    assert torch.equal(buffer, torch.full_like(buffer, 7.0))


def test_large_scores_do_not_overflow(device):
    query, key, value, bounds = packed([40], 0, 1, 16, torch.float32, device)
    out = packed_attention(query * 100, key * 100, value, bounds, 40, tiles=SMALL)
    assert relative_error(out, exact(query * 100, key * 100, value, bounds)) <= 1e-3


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    query, key, value, bounds = packed([20, 13], 4, 2, 16, torch.float32, device)
    if device.type == "cuda":
        expected = packed_attention(query, key, value, bounds, 20)
    else:
        expected = packed_attention_reference(query, key, value, bounds)
    assert torch.equal(attention(query, key, value, bounds, 20), expected)


def test_the_twin_is_the_softmax_with_zeros_in_the_padding(device):
    query, key, value, bounds = packed([20, 0, 13], 4, 2, 72, torch.float32, device)
    out = packed_attention_reference(query, key, value, bounds)
    assert relative_error(out, exact(query, key, value, bounds)) <= 1e-6
    assert not out[33:].any()


def test_without_triton_the_module_imports_and_says_what_to_call(monkeypatch):
    monkeypatch.setattr(foveate.kernels, "attention", foveate.kernels.attention)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "foveate.kernels.attention")
    bare = importlib.import_module("foveate.kernels.attention")
    query, key, value, bounds = packed([20], 0, 2, 16, torch.float32, "cpu")
    assert torch.equal(bare.attention(query, key, value, bounds, 20), attention(query, key, value, bounds, 20))
    with pytest.raises(DeviceError, match=r"needs Triton.*call attention"):
        bare.packed_attention(query, key, value, bounds, 20)


WRONG = {
    "two dimensions": (
        lambda a: {n: a[n][0] for n in ("query", "key", "value")},
        r"\[rows, heads, head_size\].*\[2, 16\]",
    ),
    "other keys": (lambda a: {"key": a["key"][1:]}, r"got \[9, 2, 16\], \[8, 2, 16\]"),
    "integers": (lambda a: {n: a[n].int() for n in ("query", "key", "value")}, "bfloat16.*got torch.int32"),
    "mixed types": (lambda a: {"key": a["key"].half()}, "float32, torch.float16"),
    "channels apart": (lambda a: {"query": a["query"].mT.contiguous().mT}, "of query must lie side by side"),
    "heads apart": (lambda a: {"value": a["value"].movedim(1, 0).contiguous().movedim(0, 1)}, "of value must lie"),
    "odd rows": (lambda _: {"value": torch.empty(9, 33)[:, :32].unflatten(1, (2, 16))}, "row stride of 33 elements"),
    "odd start": (lambda _: {"query": torch.empty(9, 40)[:, 1:33].unflatten(1, (2, 16))}, "a start 4 bytes beyond"),
    "long bounds": (lambda a: {"bounds": a["bounds"].long()}, r"int32 \[slots \+ 1\].*torch.int64"),
    "no bounds": (lambda a: {"bounds": a["bounds"][:0]}, r"got torch.int32 \[0\]"),
    "strided bounds": (lambda a: {"bounds": a["bounds"].repeat(2)[::2]}, r"strides \(2,\)"),
    "bounds elsewhere": (lambda a: {"bounds": a["bounds"].to("meta")}, "one device: got .*meta"),
    "a huge sequence": (lambda _: {"longest": 2**25}, "33554432 rows of 96 elements in query"),
    "negative longest": (lambda _: {"longest": -1}, "longest is -1 rows"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(wrong):
    change, message = WRONG[wrong]
    names = ("query", "key", "value", "bounds")
    right = dict(zip(names, packed([4, 5], 0, 2, 16, torch.float32, "cpu"), strict=True)) | {"longest": 5}
    with pytest.raises(ValueError, match=message):
        packed_attention(**(right | change(right)))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.empty(9, 31), r"must be torch.float32 \[9, 32\]"),
        (torch.empty(8, 32), r"got torch.float32 \[8, 32\]"),
        (torch.empty(9, 32, dtype=torch.float64), "got torch.float64"),
        (torch.empty(32, 9).T, r"of out must lie side by side, strides \(1,\): got \(9,\)"),
        (torch.empty(9, 33)[:, :32], "of out must begin"),
    ],
    ids=["narrow", "short", "wide type", "columns", "odd rows"],
)
def test_an_output_of_another_shape_type_or_layout_is_refused(out, message):
    with pytest.raises(ValueError, match=message):
        packed_attention(*packed([4, 5], 0, 2, 16, torch.float32, "cpu"), 5, out=out)


def test_a_head_size_it_cannot_take_is_refused():
    with pytest.raises(ConfigurationError, match="head size is 12 channels"):
        packed_attention(*packed([4, 5], 0, 2, 12, torch.float32, "cpu"), 5)

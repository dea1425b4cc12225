"""The attention kernel at the sizes of the vision encoders, compiled, captured and replayed."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from foveate.kernels.attention import attention, packed_attention, packed_attention_reference
from foveate.kernels.attention_tiles import AttentionTiles

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

HEADS = {"so400m": (16, 72), "base": (12, 64)}
LONGEST = 1024


def fused_rows(rows: int, heads: int, head_size: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """`[rows, 3 * heads * head_size]` random values, the output of a fused projection."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(rows, 3 * heads * head_size, device="cuda", generator=generator).to(dtype)


def parts(fused: Tensor, heads: int, head_size: int) -> tuple[Tensor, ...]:
    return tuple(part.unflatten(1, (heads, head_size)) for part in fused.chunk(3, dim=1))


def bounds_of(lengths: list[int], slots: int) -> Tensor:
    """int32 `[slots + 1]`; the slots behind the sequences are empty."""
    lengths = lengths + [0] * (slots - len(lengths))
    return torch.tensor([0, *lengths]).cumsum(0).to("cuda", torch.int32)


def exact(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
    out = torch.zeros(query.shape, dtype=torch.float64, device=query.device)
    for begin, end in pairwise(bounds.tolist()):
        q, k, v = (tensor[begin:end].double().transpose(0, 1) for tensor in (query, key, value))
        out[begin:end] = ((q @ k.mT * query.shape[2] ** -0.5).softmax(-1) @ v).transpose(0, 1)
    return out.flatten(1)


def relative_error(out: Tensor, reference: Tensor) -> float:
    return ((out.double() - reference).norm() / reference.norm()).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tower", HEADS)
@pytest.mark.parametrize(
    "lengths", [[256], [1024], [1024, 1024, 768], [1, 1023, 64, 65, 640, 257], [1024] * 9 + [576]], ids=str
)
def test_the_error_is_at_most_twice_that_of_plain_torch_and_the_padding_is_zeros(tower, lengths, dtype):
    heads, head_size = HEADS[tower]
    real = sum(lengths)
    fused = fused_rows(real + 300, heads, head_size, dtype)
    fused[real:] = float("nan")
    query, key, value = parts(fused, heads, head_size)
    bounds = bounds_of(lengths, len(lengths) + 2)
    out = packed_attention(query, key, value, bounds, LONGEST)
    reference = exact(query, key, value, bounds)
    twin = packed_attention_reference(query, key, value, bounds)
    assert relative_error(out, reference) <= 2 * relative_error(twin, reference)
    assert torch.equal(out[real:], torch.zeros_like(out[real:]))


@pytest.mark.parametrize("rows", [512, 1000, 2800, 6000])
@pytest.mark.parametrize("head_size", [8, 16, 40, 64, 72, 80, 96, 128])
def test_every_head_size_is_right_whatever_is_left_in_the_last_block(head_size, rows):
    lengths = [1, 63, 65, 370]
    fused = fused_rows(rows, 16, head_size, torch.bfloat16)
    fused[sum(lengths) :] = float("nan")
    query, key, value = parts(fused, 16, head_size)
    bounds = bounds_of(lengths, 4)
    out = packed_attention(query, key, value, bounds, 370)
    reference = exact(query, key, value, bounds)
    twin = packed_attention_reference(query, key, value, bounds)
    assert relative_error(out, reference) <= 2 * relative_error(twin, reference)
    assert not out[sum(lengths) :].any()


@pytest.mark.parametrize(
    "sizes",
    [
        (64, 64, 4, 3),
        (64, 64, 4, 3, 168),
        (64, 64, 4, 2, 128),
        (128, 64, 8, 3),
        (128, 64, 8, 3, 128),
        (64, 32, 4, 2),
        (64, 128, 4, 2),
        (128, 64, 4, 3),
        (128, 128, 8, 2),
        (32, 32, 4, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("tower", HEADS)
def test_every_block_size_is_right(tower, sizes):
    heads, head_size = HEADS[tower]
    lengths = [1024, 257, 1, 100]
    query, key, value = parts(fused_rows(sum(lengths), heads, head_size, torch.bfloat16), heads, head_size)
    bounds = bounds_of(lengths, 4)
    out = packed_attention(query, key, value, bounds, LONGEST, tiles=AttentionTiles(*sizes))
    reference = exact(query, key, value, bounds)
    twin = packed_attention_reference(query, key, value, bounds)
    assert relative_error(out, reference) <= 2 * relative_error(twin, reference)


@pytest.mark.parametrize("tower", HEADS)
def test_float32_is_not_cut_to_tf32(tower):
    heads, head_size = HEADS[tower]
    query, key, value = parts(fused_rows(1400, heads, head_size, torch.float32), heads, head_size)
    bounds = bounds_of([1024, 300], 2)
    out = packed_attention(query, key, value, bounds, LONGEST)
    assert relative_error(out, exact(query, key, value, bounds)) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tower", HEADS)
def test_one_capture_replays_every_segmentation_with_the_bits_of_a_plain_launch(tower, dtype):
    heads, head_size = HEADS[tower]
    rows, slots = 2048, 8
    fused = torch.zeros(rows, 3 * heads * head_size, dtype=dtype, device="cuda")
    bounds = bounds_of([rows // 2] * 2, slots)
    query, key, value = parts(fused, heads, head_size)
    out = torch.empty(rows, heads * head_size, dtype=dtype, device="cuda")
    packed_attention(query, key, value, bounds, LONGEST, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        packed_attention(query, key, value, bounds, LONGEST, out=out)

    small, large = [256], [1024, 700, 1, 64]
    kept = []
    for step, lengths in enumerate((small, large, [64, 1, 1024, 700], [], [1024, 1024], small)):
        real = sum(lengths)
        out.fill_(float("nan"))
        fused[:real] = fused_rows(real, heads, head_size, dtype)
        fused[real:] = float("nan")
        bounds.copy_(bounds_of(lengths, slots))
        graph.replay()
        assert torch.equal(out, packed_attention(query, key, value, bounds, LONGEST)), f"replay {step}"
        assert torch.equal(out[real:], torch.zeros_like(out[real:])), f"replay {step}"
        kept.append(out.clone())
    assert torch.equal(kept[0], kept[-1])
    assert not torch.equal(kept[1], kept[2])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_a_launch_reads_nothing_back_to_the_host():
    query, key, value = parts(fused_rows(512, 12, 64, torch.bfloat16), 12, 64)
    bounds = bounds_of([256, 200], 4)
    attention(query, key, value, bounds, LONGEST)
    try:
        torch.cuda.set_sync_debug_mode("error")
        attention(query, key, value, bounds, LONGEST)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_many_slots_and_much_padding_are_right():
    fused = fused_rows(8192, 12, 64, torch.bfloat16)
    fused[700:] = float("nan")
    query, key, value = parts(fused, 12, 64)
    bounds = bounds_of([7] * 100, 300)
    out = packed_attention(query, key, value, bounds, 7)
    twin = packed_attention_reference(query, key, value, bounds)
    reference = exact(query, key, value, bounds)
    assert relative_error(out, reference) <= 2 * relative_error(twin, reference)
    assert torch.equal(out[700:], torch.zeros_like(out[700:]))

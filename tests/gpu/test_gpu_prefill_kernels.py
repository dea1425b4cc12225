"""Attention and short convolution of packed prefills at true sizes, compiled and captured.

The tests in tests/kernels run here too, with small shapes: `pytest tests/kernels tests/gpu`.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foveate.kernels.attention_tiles import AttentionTiles
from foveate.kernels.packed_convolution import (
    packed_convolution,
    packed_convolution_reference,
    packed_convolution_triton,
)
from foveate.kernels.prefill_attention import (
    prefill_attention,
    prefill_attention_reference,
    prefill_attention_triton,
)
from tests.kernels.comparing import is_as_right, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

BF16 = torch.bfloat16
LANGUAGE = {"350M": (16, 8, 1024), "2.6B": (32, 8, 2048)}
"""Heads, key-value heads, width; heads are 64 wide."""
PAGE_TOKENS = 64
MOST_TOKENS = 32768 + PAGE_TOKENS
"""Of one context, for which a page table has places."""
UNUSED = 3
"""Sequences that a batch has no use for."""
FORMS = [
    AttentionTiles(rows, columns, warps, stages)
    for rows, warps in ((64, 4), (128, 8), (128, 4))
    for columns in (32, 64, 128)
    for stages in (2, 3, 4)
]
CHUNKS = {
    "one token": [(1, 0)],
    "one picture": [(281, 0)],
    "a large picture": [(2334, 0)],
    "32 pictures": [(281, 0)] * 32,
    "a question after a picture": [(20, 281)],
    "the end of a long context": [(64, 32700), (1, 32767)],
    "every edge of a page": [(new, old) for new in (1, 63, 64, 65) for old in (0, 1, 63, 64, 65)],
    "long and short": [(500, 5000), (1, 4095), (2000, 0), (3, 100), (128, 128)],
}


def random(*shape: int, dtype: torch.dtype = BF16, seed: int = 0) -> Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).to(dtype)


def replayed(work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Capture `work` after a warm-up; returns the replay and the tensor it writes."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()
    return graph.replay, out


def offsets(lengths: list[int], sequences: int) -> Tensor:
    """Bounds `[sequences + 1]`; those of unused sequences repeat the last offset."""
    unused = [0] * (sequences - len(lengths))
    return torch.tensor([0, *lengths, *unused]).cumsum(0).to("cuda", torch.int32)


def paged(
    chunks: list[tuple[int, int]],
    heads: int,
    key_heads: int,
    *,
    sequences: int = 0,
    tokens: int = 0,
    dtype: torch.dtype = BF16,
    seed: int = 0,
) -> tuple[Tensor, ...]:
    """New and cached tokens of each sequence as a batch; NaN in the padding and in every row that nobody owns."""
    sequences = sequences or len(chunks) + UNUSED
    real = sum(new for new, _ in chunks)
    pages = sum(-(-(new + old) // PAGE_TOKENS) for new, old in chunks) + 1
    order = torch.randperm(pages - 1, generator=torch.Generator().manual_seed(seed)) + 1  # Page 0 is nobody's.
    tables = torch.zeros(sequences, -(-MOST_TOKENS // PAGE_TOKENS), dtype=torch.int32)
    caches = [random(pages, PAGE_TOKENS, key_heads, 64, dtype=dtype, seed=seed + part) for part in (1, 2)]
    first = 0
    for row, (new, old) in enumerate(chunks):
        count = -(-(new + old) // PAGE_TOKENS)
        tables[row, :count] = order[first : first + count]
        first += count
        for cache in caches:
            cache[tables[row, count - 1].item(), (new + old - 1) % PAGE_TOKENS + 1 :] = float("nan")
            cache[0] = float("nan")
    query = random(tokens or real + 100, heads, 64, dtype=dtype, seed=seed)
    query[real:] = float("nan")
    cached = torch.tensor([old for _, old in chunks] + [0] * (sequences - len(chunks)))
    bounds = offsets([new for new, _ in chunks], sequences)
    return query, *caches, tables.cuda(), bounds, cached.to("cuda", torch.int32)


def exact_attention(query: Tensor, keys: Tensor, values: Tensor, *rest: Tensor) -> Tensor:
    return prefill_attention_reference(query.double(), keys.double(), values.double(), *rest)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("size", LANGUAGE)
def test_prefill_attention_is_as_right_as_plain_torch(size: str, chunks: str) -> None:
    arguments = paged(CHUNKS[chunks], *LANGUAGE[size][:2])
    out = prefill_attention_triton(*arguments)
    assert is_as_right(out, prefill_attention_reference(*arguments), exact_attention(*arguments))
    assert not out[-100:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("size", LANGUAGE)
def test_prefill_attention_is_as_right_in_other_types(size: str, dtype: torch.dtype) -> None:
    arguments = paged(CHUNKS["long and short"], *LANGUAGE[size][:2], dtype=dtype)
    out = prefill_attention_triton(*arguments)
    assert is_as_right(out, prefill_attention_reference(*arguments), exact_attention(*arguments))


@pytest.mark.parametrize(
    "form", FORMS, ids=lambda form: f"{form.block_rows}x{form.block_columns}-{form.warps}-{form.stages}"
)
@pytest.mark.parametrize("size", LANGUAGE)
def test_prefill_attention_is_right_with_every_form_of_its_program(size: str, form: AttentionTiles) -> None:
    arguments = paged([(281, 0), (1, 63), (300, 1000), (64, 64)], *LANGUAGE[size][:2])
    out = prefill_attention_triton(*arguments, tiles=form)
    assert is_as_right(out, prefill_attention_reference(*arguments), exact_attention(*arguments))
    assert not out[-100:].any()


def test_one_capture_of_prefill_attention_serves_every_batch() -> None:
    budget = {"sequences": 8, "tokens": 1024}
    batches = [
        paged(chunks, 16, 8, seed=seed, **budget)
        for seed, chunks in enumerate([[(281, 0)] * 3, [(1000, 0), (24, 5000)], [(1, 63)] * 8, [(500, 32000)]])
    ]
    most_pages = max(len(batch[1]) for batch in batches)
    query, _, _, tables, bounds, cached = (tensor.clone() for tensor in batches[0])
    keys, values = (torch.zeros(most_pages, PAGE_TOKENS, 8, 64, dtype=BF16, device="cuda") for _ in range(2))
    replay, out = replayed(lambda: prefill_attention_triton(query, keys, values, tables, bounds, cached))
    for batch in batches:
        keys[: len(batch[1])], values[: len(batch[2])] = batch[1], batch[2]
        for ours, theirs in zip((query, tables, bounds, cached), (batch[0], *batch[3:]), strict=True):
            ours.copy_(theirs)
        replay()
        assert torch.equal(out, prefill_attention_triton(*batch))


def convolved(
    lengths: list[int], width: int, *, sequences: int = 0, rows: int = 0, seed: int = 0
) -> tuple[Tensor, ...]:
    """New rows of each sequence as gates, states, slots, bounds and weight. Slot 0 is nobody's, with NaN in it."""
    sequences = sequences or len(lengths) + UNUSED
    gates, states = random(rows or sum(lengths) + 100, 3 * width, seed=seed), random(65, 2, width, seed=seed + 1)
    gates[sum(lengths) :], states[0] = float("nan"), float("nan")
    slots = torch.zeros(sequences, dtype=torch.int64, device="cuda")
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed)) + 1
    slots[: len(lengths)] = order[: len(lengths)].cuda()
    return gates, states, slots, offsets(lengths, sequences), random(width, 3, seed=2)


@pytest.mark.parametrize("lengths", [[1], [281], [2334], [281] * 32, [1, 2, 3, 500, 1, 16, 17]], ids=str)
@pytest.mark.parametrize("size", LANGUAGE)
def test_the_packed_convolution_is_that_of_plain_torch(size: str, lengths: list[int]) -> None:
    width = LANGUAGE[size][2]
    gates, states, slots, bounds, weight = convolved(lengths, width)
    for bias in (None, random(width, seed=3)):
        moved, twin_moved, wide_moved = states.clone(), states.clone(), states.double()
        out = packed_convolution_triton(gates, moved, slots, bounds, weight, bias)
        twin = packed_convolution_reference(gates, twin_moved, slots, bounds, weight, bias)
        wide_bias = None if bias is None else bias.double()
        wide = packed_convolution_reference(gates.double(), wide_moved, slots, bounds, weight.double(), wide_bias)
        assert torch.equal(moved[1:], twin_moved[1:])
        assert moved[0].isnan().all()
        assert (out != twin).float().mean() < 0.01
        assert relative_error(out, twin) < 1e-3
        assert is_as_right(out, twin, wide)
        assert not out[-100:].any()


def test_one_capture_of_the_packed_convolution_serves_every_batch() -> None:
    budget = {"sequences": 8, "rows": 1024}
    batches = [
        convolved(lengths, 1024, seed=seed, **budget)
        for seed, lengths in enumerate([[281] * 3, [1000, 24], [1, 2, 3, 4, 5, 6, 7, 8], [1]])
    ]
    gates, states, slots, bounds, weight = (tensor.clone() for tensor in batches[0])
    replay, out = replayed(lambda: packed_convolution_triton(gates, states, slots, bounds, weight, None))
    for batch in batches:
        for ours, theirs in zip((gates, states, slots, bounds), batch, strict=False):
            ours.copy_(theirs)
        replay()
        assert torch.equal(out, packed_convolution_triton(*batch, None))
        assert torch.equal(states[1:], batch[1][1:])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_both_read_nothing_back_to_the_host() -> None:
    attended, rows = paged([(281, 0), (3, 64)], 16, 8), convolved([281, 3], 1024)
    prefill_attention(*attended)
    packed_convolution(*rows, None)
    try:
        torch.cuda.set_sync_debug_mode("error")
        prefill_attention(*attended)
        packed_convolution(*rows, None)
    finally:
        torch.cuda.set_sync_debug_mode("default")

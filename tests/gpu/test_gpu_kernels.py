"""Norms, rotation, paged attention, convolution steps, gated products and float8 at true sizes, compiled and captured.

The tests in tests/kernels run here too, with small shapes: `pytest tests/kernels tests/gpu`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels import (
    decode_attention,
    fp8,
    gated,
    layer_norm,
    norm,
    rotary,
    rotary_cache,
    short_convolution_step,
)
from foveate.kernels.decode_attention import decode_attention_reference, decode_attention_triton
from foveate.kernels.gated import ProductForm
from foveate.kernels.rotary_cache import CacheRows, HeadNorms
from tests.gpu.noise import BF16, LANGUAGE, PAGE_TOKENS, needs_hopper, random
from tests.kernels.comparing import is_as_right, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def replayed(work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Capture `work` after a warm-up; returns the replay and the tensor it writes."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()
    return graph.replay, out


@pytest.mark.parametrize("rows", [256, 1024, 11264])
@pytest.mark.parametrize("width", [768, 1152])
def test_layer_norm_is_as_right_as_plain_torch(width: int, rows: int) -> None:
    hidden, weight, bias, offset = random(rows, width), random(width, seed=1), random(width, seed=2), None
    for offset in (None, random(width, dtype=torch.float32, seed=3)):
        out = layer_norm.layer_norm_triton(hidden, offset, weight, bias, 1e-6)
        twin = layer_norm.layer_norm_reference(hidden, offset, weight, bias, 1e-6)
        wide = hidden.double() if offset is None else hidden.double() + offset.double()
        exact = F.layer_norm(wide, (width,), weight.double(), bias.double(), 1e-6)
        assert is_as_right(out, twin, exact)


@pytest.mark.parametrize("rows", [1, 64, 4096])
@pytest.mark.parametrize("width", [1024, 2048])
def test_sum_and_rms_norm_are_those_of_plain_torch(width: int, rows: int) -> None:
    hidden, branch, weight = random(rows, width), random(rows, width, seed=1), random(width, seed=2)
    total, out = norm.add_rms_norm_triton(hidden, branch, weight, 1e-5)
    twin_total, twin = norm.add_rms_norm_reference(hidden, branch, weight, 1e-5)
    assert torch.equal(total, twin_total)
    assert (out != twin).float().mean() < 0.01
    assert relative_error(out, twin) < 1e-3


@pytest.mark.parametrize("tokens", [1, 64, 3000])
@pytest.mark.parametrize("size", LANGUAGE)
def test_rotation_and_cache_write_are_those_of_plain_torch_up_to_position_128000(size: str, tokens: int) -> None:
    heads, key_heads, _, _ = LANGUAGE[size]
    qkv = random(tokens, (heads + 2 * key_heads) * 64)
    positions = torch.randint(0, 128000, (tokens,), device="cuda")
    positions[0] = 127999
    norms = HeadNorms(random(64, seed=1), random(64, seed=2), 1e-5, 1e6, 128000)
    rows = torch.randperm(4096, device="cuda")[:tokens]
    cache = CacheRows(*(torch.zeros(4096, key_heads, 64, dtype=BF16, device="cuda") for _ in range(2)), rows)
    twin_cache = replace(cache, keys=cache.keys.clone(), values=cache.values.clone())
    query = rotary_cache.rotate_and_cache_triton(qkv, positions, norms, cache)
    twin = rotary_cache.rotate_and_cache_reference(qkv, positions, norms, twin_cache)
    for ours, theirs in ((query, twin), (cache.keys, twin_cache.keys)):
        assert (ours != theirs).float().mean() < 0.01
        assert relative_error(ours, theirs) < 1e-3
    assert torch.equal(cache.values, twin_cache.values)


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_the_kept_angles_have_the_bits_of_the_twin_s_at_every_position(dtype: torch.dtype) -> None:
    positions, device = torch.arange(128000, device="cuda"), torch.device("cuda", torch.cuda.current_device())
    table = rotary.kept_rotary_table(64, 1e6, 128000, dtype, device)
    for kept, angles in zip(table.unbind(1), rotary.rotary_angles(positions, 64, 1e6, dtype), strict=True):
        assert torch.equal(torch.cat((kept, kept), -1), angles[:, 0])


def paged(lengths: list[int], most_tokens: int, heads: int, key_heads: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Queries, shuffled pages with NaN where nothing may be read, page tables and lengths."""
    table_pages = most_tokens // PAGE_TOKENS
    pages = sum(-(-length // PAGE_TOKENS) for length in lengths) + 1
    order = torch.randperm(pages - 1, generator=torch.Generator().manual_seed(seed)) + 1  # page 0 is nobody's
    tables = torch.zeros(len(lengths), table_pages, dtype=torch.int32)
    caches = [random(pages, PAGE_TOKENS, key_heads, 64, seed=seed + part) for part in (1, 2)]
    first = 0
    for row, length in enumerate(lengths):
        count = -(-length // PAGE_TOKENS)
        tables[row, :count] = order[first : first + count]
        first += count
        for cache in caches:
            cache[tables[row, count - 1].item(), (length - 1) % PAGE_TOKENS + 1 :] = float("nan")
            cache[0] = float("nan")
    query = random(len(lengths), heads, 64, seed=seed)
    return query, *caches, tables.cuda(), torch.tensor(lengths, dtype=torch.int32, device="cuda")


def exact_decode(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor) -> Tensor:
    return decode_attention_reference(query.double(), keys.double(), values.double(), tables, lengths)


@pytest.mark.parametrize(
    "lengths",
    [[1], [64], [65], [1000], [32768], [1, 63, 64, 65, 5000], [1024] * 32, [*range(1, 3000, 47)]],
    ids=lambda lengths: f"{len(lengths)} up to {max(lengths)}",
)
@pytest.mark.parametrize("size", LANGUAGE)
def test_decode_attention_is_as_right_as_plain_torch(size: str, lengths: list[int]) -> None:
    arguments = paged(lengths, 32768, *LANGUAGE[size][:2])
    exact, twin = exact_decode(*arguments), decode_attention_reference(*arguments)
    for splits in (None, 1, 4, 64):
        assert is_as_right(decode_attention_triton(*arguments, splits=splits), twin, exact), f"{splits} splits"


@pytest.mark.parametrize("splits", [None, 1])
@pytest.mark.parametrize("carries_page", [False, True], ids=["", "carried"])
@pytest.mark.parametrize(
    ("warps", "stages"), [(1, 2), (1, 3), (2, 3), (2, 4), (2, 5), (4, 2), (4, 3), (4, 5), (4, 8), (8, 3)]
)
@pytest.mark.parametrize("size", LANGUAGE)
def test_decode_attention_is_right_with_every_form_of_its_program(
    size: str, warps: int, stages: int, carries_page: bool, splits: int | None
) -> None:
    arguments = paged([700, 1, 64, 2049], 4096, *LANGUAGE[size][:2])
    out = decode_attention_triton(*arguments, splits=splits, warps=warps, stages=stages, carries_page=carries_page)
    assert is_as_right(out, decode_attention_reference(*arguments), exact_decode(*arguments))


@needs_hopper
def test_a_join_that_overlaps_its_splits_gives_the_same_bits_in_a_graph() -> None:
    arguments = paged([5000, 3, 128, 2000], 8192, 16, 8)
    expected = decode_attention_triton(*arguments, splits=32, overlaps=False)

    def layers() -> Tensor:
        return torch.stack([decode_attention_triton(*arguments, splits=32, overlaps=True) for _ in range(50)])

    replay, out = replayed(layers)
    for _ in range(10):
        out.zero_()
        replay()
        assert all(torch.equal(each, expected) for each in out)


def test_one_capture_of_decode_attention_serves_every_state_of_the_cache() -> None:
    query, keys, values, tables, lengths = paged([500, 3, 128, 2000], 4096, 16, 8)
    states = [paged(each, 4096, 16, 8, seed=seed) for seed, each in enumerate([[1, 2, 3, 4], [4000, 1, 64, 65]], 1)]
    keys, values = (torch.zeros(200, *pages.shape[1:], dtype=BF16, device="cuda") for pages in (keys, values))
    replay, out = replayed(lambda: decode_attention_triton(query, keys, values, tables, lengths))
    for state in states:
        query.copy_(state[0])
        keys[: len(state[1])] = state[1]
        values[: len(state[2])] = state[2]
        tables.copy_(state[3])
        lengths.copy_(state[4])
        replay()
        assert torch.equal(out, decode_attention_triton(*state))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_decode_attention_reads_nothing_back_to_the_host() -> None:
    arguments = paged([500, 3], 4096, 16, 8)
    decode_attention.decode_attention(*arguments)
    try:
        torch.cuda.set_sync_debug_mode("error")
        decode_attention.decode_attention(*arguments)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("sequences", [1, 64])
@pytest.mark.parametrize("width", [1024, 2048])
def test_the_convolution_step_is_that_of_plain_torch(width: int, sequences: int) -> None:
    gates, states = random(sequences, 3 * width), random(65, 2, width, seed=1)
    slots, weight = torch.randperm(65, device="cuda")[:sequences], random(width, 3, seed=2)
    twin_states = states.clone()
    out = short_convolution_step.short_convolution_step_triton(gates, states, slots, weight, None)
    twin = short_convolution_step.short_convolution_step_reference(gates, twin_states, slots, weight, None)
    assert torch.equal(states, twin_states)
    assert (out != twin).float().mean() < 0.01
    assert relative_error(out, twin) < 1e-3


@pytest.mark.parametrize("rows", [1, 4, 64, 3000])
@pytest.mark.parametrize("size", LANGUAGE)
def test_the_gate_times_up_is_that_of_plain_torch(size: str, rows: int) -> None:
    gate_up = random(rows, 2 * LANGUAGE[size][3])
    out, twin = gated.silu_multiply_triton(gate_up), gated.silu_multiply_reference(gate_up)
    assert (out != twin).float().mean() < 0.01
    assert relative_error(out, twin) < 1e-3


FORMS = [
    ProductForm(),
    ProductForm(eviction="evict_first"),
    ProductForm(warps=2, unroll=2),
    ProductForm(outputs=1, warps=1),
    ProductForm(columns=512, warps=1, unroll=3),
    ProductForm(outputs=1, columns=2048),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("size", LANGUAGE)
def test_products_of_few_rows_are_as_right_as_the_library_s(size: str, rows: int, form: ProductForm) -> None:
    _, _, width, inner = LANGUAGE[size]
    for outputs, inputs in ((2 * inner, width), (width, inner), (3 * width, width), (width, width), (65536, width)):
        given, weight = random(rows, inputs), random(outputs, inputs, seed=1) / inputs**0.5
        exact = given.double() @ weight.double().T
        assert is_as_right(gated.small_product_triton(given, weight, form=form), F.linear(given, weight), exact)
    given, weight = random(rows, width), random(2 * inner, width, seed=1) / width**0.5
    exact = gated.silu_multiply_reference(given.double() @ weight.double().T)
    twin = gated.silu_multiply_reference(F.linear(given, weight))
    assert is_as_right(gated.gated_product_triton(given, weight, form=form), twin, exact)


@needs_hopper
def test_products_that_overlap_the_launch_before_read_what_it_wrote() -> None:
    weights = [random(1024, 1024, seed=seed) / 32 for seed in range(20)]
    row = random(1, 1024, seed=20)

    def chain(form: ProductForm) -> Tensor:
        hidden = row
        for weight in weights:
            hidden = gated.small_product_triton(hidden, weight, form=form)
        return hidden

    expected = chain(ProductForm())
    replay, out = replayed(lambda: chain(ProductForm(overlaps=True)))
    for _ in range(50):
        replay()
        assert torch.equal(out, expected)


@pytest.mark.parametrize("rows", [1, 256, 11264])
@pytest.mark.parametrize(("width", "inner"), [(768, 3072), (1152, 4304)])
def test_float8_rows_are_those_of_plain_torch(width: int, inner: int, rows: int) -> None:
    hidden, branch, wide = random(rows, width), random(rows, width, seed=1), random(rows, inner, seed=2)
    weight, bias = random(width, seed=3), random(width, seed=4)
    offset = random(width, dtype=torch.float32, seed=5)
    twin_hidden = hidden.clone()
    for warps in (None, 1, 2, 8):
        ours, twin = fp8.quantise_triton(wide, warps=warps), fp8.quantise_reference(wide)
        assert torch.equal(ours.values.view(torch.uint8), twin.values.view(torch.uint8))
        assert torch.equal(ours.scales, twin.scales)
    pairs = [
        *((fp8.gelu_fp8_triton(wide, warps=warps), fp8.gelu_fp8_reference(wide)) for warps in (None, 2, 8)),
        (
            fp8.layer_norm_fp8_triton(hidden, branch, offset, weight, bias, 1e-6),
            fp8.layer_norm_fp8_reference(twin_hidden, branch, offset, weight, bias, 1e-6),
        ),
    ]
    assert torch.equal(hidden, twin_hidden)
    for ours, twin in pairs:
        assert torch.allclose(ours.scales, twin.scales, rtol=1e-5, atol=0)
        assert (ours.values.view(torch.uint8) != twin.values.view(torch.uint8)).float().mean() < 0.01


@needs_hopper
@pytest.mark.parametrize("rows", [1, 256, 1000, 11264])
@pytest.mark.parametrize(("inputs", "outputs"), [(1152, 3456), (1152, 1152), (1152, 4304), (4304, 1152), (768, 3072)])
def test_float8_products_are_those_of_what_the_numbers_stand_for(inputs: int, outputs: int, rows: int) -> None:
    given, weight = fp8.quantise(random(rows, inputs)), fp8.quantise(random(outputs, inputs, seed=1))
    for bias in (None, random(outputs, seed=2)):
        out = fp8.fp8_linear(given, weight, bias, BF16)
        exact = fp8.fp8_linear_reference(given, weight, bias, torch.float32)
        assert relative_error(out, exact) < 5e-3  # rounding to bfloat16 is 1.7e-3; the rest is fast accumulation

"""Norms, rotation, paged attention, convolution steps, gated products and float8 at true sizes, compiled and captured.

At the end chains of kernels that overlap: every replay has other inputs, so what is read before it was written, or
written before it was read, shows.

The tests in tests/kernels run here too, with small shapes: `pytest tests/kernels tests/gpu`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels import (
    availability,
    decode_attention,
    fp8,
    gated,
    layer_norm,
    norm,
    rotary,
    rotary_cache,
    short_convolution_step,
)
from foveate.kernels.attention import attention
from foveate.kernels.decode_attention import decode_attention_reference, decode_attention_triton
from foveate.kernels.fp8 import Fp8Rows
from foveate.kernels.gated import ProductForm, gated_product, small_product
from foveate.kernels.linear import add_product_, linear_gelu_tanh
from foveate.kernels.packed_convolution import packed_convolution
from foveate.kernels.position_rows import position_rows
from foveate.kernels.prefill_attention import prefill_attention
from foveate.kernels.rotary_cache import CacheRows, HeadNorms
from foveate.kernels.tile_layout import tile_layout
from tests.kernels.comparing import is_as_right, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

needs_hopper = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs compute capability 9.0"
)

BF16 = torch.bfloat16
LANGUAGE = {"350M": (16, 8, 1024, 4608), "2.6B": (32, 8, 2048, 10752)}
"""Heads, key-value heads, width, FFN width; heads are 64 wide."""
PAGE_TOKENS = 64


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


REPLAYS = 200
LAYERS = 3
PAGES = 16
"""Of one sequence."""
STATE_SLOTS = 40
HEADS, KEY_HEADS, WIDTH, INNER = LANGUAGE["350M"]

Inputs = Sequence[Tensor]
Work = Callable[..., tuple[Tensor, ...]]


def weight(outputs: int, inputs: int, seed: int = 0) -> Tensor:
    return random(outputs, inputs, seed=seed) / inputs**0.5


@dataclass(frozen=True)
class Recording:
    """A captured piece of work: where its inputs and its outputs lie, and the stream it was captured on."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stream: torch.cuda.Stream

    def replay(self, given: Inputs) -> list[Tensor]:
        """Run it on other inputs; nothing waits for it but its own stream."""
        with torch.cuda.stream(self.stream):
            for held, new in zip(self.inputs, given, strict=True):
                held.copy_(new)
            self.graph.replay()
            return [out.clone() for out in self.outputs]


def record(work: Work, given: Inputs) -> Recording:
    """Capture `work` on a stream of its own, where what the library keeps for a stream is its own too."""
    inputs, stream, graph = tuple(each.clone() for each in given), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with mock.patch.object(availability, "MOST_OVERLAPPED_ROWS", 1 << 30):
        with torch.cuda.stream(stream):
            work(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            outputs = work(*inputs)
    return Recording(graph, inputs, outputs, stream)


def record_in_order(work: Work, given: Inputs) -> Recording:
    """The same with every launch of ours behind the end of the one before it."""
    with mock.patch.object(availability, "can_overlap", return_value=False):
        return record(work, given)


def assert_same_bits(ours: list[list[Tensor]], expected: list[list[Tensor]]) -> None:
    """Bits are equal, finite, and other in every replay: an old result would not pass for a new one."""
    torch.cuda.synchronize()
    for number, (left, right) in enumerate(zip(ours, expected, strict=True)):
        for place, (one, other) in enumerate(zip(left, right, strict=True)):
            assert torch.equal(one, other), f"output {place} of replay {number}"
        assert right[0].isfinite().all()
    assert not any(torch.equal(one[0], two[0]) for one, two in pairwise(expected))


class LanguageLayers:
    """A few layers of the language model: convolution, attention and FFN, with caches of their own."""

    def __init__(self) -> None:
        qkv = (HEADS + 2 * KEY_HEADS) * 64
        sizes = {"gates": 3 * WIDTH, "mixed": WIDTH, "qkv": qkv, "attended": WIDTH, "gate_up": 2 * INNER}
        self.weights = {name: weight(outputs, WIDTH, seed) for seed, (name, outputs) in enumerate(sizes.items())}
        self.down, self.taps = weight(WIDTH, INNER, 5), random(WIDTH, 3, seed=6)
        self.norms = [1 + random(WIDTH, seed=seed) / 8 for seed in (7, 8, 9)]
        self.heads = HeadNorms(random(64, seed=10), random(64, seed=11), 1e-5, 1e6, 128000)
        self.states = torch.empty(LAYERS, STATE_SLOTS, 2, WIDTH, dtype=BF16, device="cuda")
        self.pages = torch.empty(LAYERS, 2, STATE_SLOTS * PAGES, PAGE_TOKENS, KEY_HEADS, 64, dtype=BF16, device="cuda")

    def reset(self) -> None:
        """Have the caches hold what they hold at the beginning."""
        self.states.copy_(random(*self.states.shape, seed=12))
        self.pages.copy_(random(*self.pages.shape, seed=13))
        torch.cuda.synchronize()

    def decode(
        self, rows: Tensor, positions: Tensor, write_rows: Tensor, tables: Tensor, lengths: Tensor, slots: Tensor
    ) -> tuple[Tensor, ...]:
        """One new token of each sequence."""

        def mix(gates: Tensor, layer: int) -> Tensor:
            return short_convolution_step.short_convolution_step(gates, self.states[layer], slots, self.taps, None)

        def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return decode_attention.decode_attention(query, keys, values, tables, lengths)

        return self._run(rows, positions, write_rows, mix, attend)

    def prefill(
        self,
        rows: Tensor,
        positions: Tensor,
        write_rows: Tensor,
        tables: Tensor,
        bounds: Tensor,
        cached: Tensor,
        slots: Tensor,
    ) -> tuple[Tensor, ...]:
        """Several new tokens of each sequence."""

        def mix(gates: Tensor, layer: int) -> Tensor:
            return packed_convolution(gates, self.states[layer], slots, bounds, self.taps, None)

        def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return prefill_attention(query, keys, values, tables, bounds, cached)

        return self._run(rows, positions, write_rows, mix, attend)

    def _run(
        self,
        hidden: Tensor,
        positions: Tensor,
        write_rows: Tensor,
        mix: Callable[[Tensor, int], Tensor],
        attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, ...]:
        branch = None
        for layer in range(LAYERS):
            keys, values = self.pages[layer]
            hidden, rows = norm.add_rms_norm(hidden, branch, self.norms[0], 1e-5)
            branch = small_product(mix(small_product(rows, self.weights["gates"]), layer), self.weights["mixed"])
            hidden, rows = norm.add_rms_norm(hidden, branch, self.norms[1], 1e-5)
            cache = CacheRows(keys.flatten(0, 1), values.flatten(0, 1), write_rows)
            qkv = small_product(rows, self.weights["qkv"])
            query = rotary_cache.rotate_and_cache(qkv, positions, self.heads, cache)
            branch = small_product(attend(query, keys, values), self.weights["attended"])
            hidden, rows = norm.add_rms_norm(hidden, branch, self.norms[2], 1e-5)
            branch = small_product(gated_product(rows, self.weights["gate_up"]), self.down)
            hidden = hidden.clone()  # A copy between two kernels of ours: no kernel, and no launch that overlaps.
        return *norm.add_rms_norm(hidden, branch, self.norms[0], 1e-5), self.states


def decode_inputs(sequences: int, number: int) -> Inputs:
    """New tokens at other places of other pages."""
    generator = torch.Generator().manual_seed(number)
    order = torch.randperm(STATE_SLOTS * PAGES, generator=generator)[: sequences * PAGES].view(sequences, PAGES)
    lengths = torch.randint(1, PAGES * PAGE_TOKENS + 1, (sequences,), generator=generator)
    last = lengths - 1
    write_rows = order.gather(1, last[:, None] // PAGE_TOKENS)[:, 0] * PAGE_TOKENS + last % PAGE_TOKENS
    slots = torch.randperm(STATE_SLOTS, generator=generator)[:sequences]
    integers = (last, write_rows, order.int(), lengths.int(), slots)
    return random(sequences, WIDTH, seed=number), *(each.cuda() for each in integers)


def prefill_inputs(rows: int, number: int) -> Inputs:
    """New tokens of four sequences, some unused, and padding behind them, which is written to a page of nobody's."""
    generator, sequences = torch.Generator().manual_seed(number), 4
    lengths = torch.randint(0, rows // sequences + 1, (sequences,), generator=generator)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    cached = torch.randint(0, PAGES * PAGE_TOKENS - rows, (sequences,), generator=generator)
    order = torch.randperm(STATE_SLOTS * PAGES - 1, generator=generator)[: sequences * PAGES].view(sequences, PAGES)
    positions = torch.zeros(rows, dtype=torch.int64)
    write_rows = (STATE_SLOTS * PAGES - 1) * PAGE_TOKENS + torch.arange(rows) % PAGE_TOKENS
    for sequence, (begin, end) in enumerate(pairwise(bounds.tolist())):
        own = cached[sequence] + torch.arange(end - begin)
        positions[begin:end] = own
        write_rows[begin:end] = order[sequence, own // PAGE_TOKENS] * PAGE_TOKENS + own % PAGE_TOKENS
    slots = torch.randperm(STATE_SLOTS, generator=generator)[:sequences]
    integers = (positions, write_rows, order.int(), bounds.int(), cached.int(), slots)
    return random(rows, WIDTH, seed=number), *(each.cuda() for each in integers)


@needs_hopper
@pytest.mark.parametrize(("kind", "rows"), [("decode", 1), ("decode", 8), ("prefill", 128)])
@torch.inference_mode()
def test_overlapping_layers_of_the_language_model_give_the_bits_of_layers_in_order(kind: str, rows: int) -> None:
    """A single row is all ours; with more of them products are the library's."""
    make = decode_inputs if kind == "decode" else prefill_inputs
    inputs, layers = [make(rows, number) for number in range(REPLAYS)], LanguageLayers()
    results = []
    for capture in (record, record_in_order):
        layers.reset()
        recording = capture(getattr(layers, kind), inputs[0])
        layers.reset()
        results.append([recording.replay(given) for given in inputs])
        torch.cuda.synchronize()
        results[-1].append([layers.pages[:, :, :-1].clone()])  # Padding that shares a row of the last page leaves any.
    assert_same_bits(*results)


class EncoderLayers:
    """Layers of the vision encoder, in its own type and in float8, from tile shapes and patches on."""

    ROWS, TILES = 1280, 6

    def __init__(self, width: int, inner: int, heads: int) -> None:
        self.width, self.heads = width, heads
        self.table, self.embedding = random(256, width), weight(width, 768, 1)
        self.qkv, self.out = weight(3 * width, width, 2), weight(width, width, 3)
        self.fc1, self.fc2 = weight(inner, width, 4), weight(width, inner, 5)
        self.inner_bias = random(inner, seed=6) / 8
        self.norm, self.bias = 1 + random(width, seed=7) / 8, random(width, seed=8) / 8
        self.offset = random(width, dtype=torch.float32, seed=9) / 8
        self.in_fp8 = {name: fp8.quantise(getattr(self, name)) for name in ("qkv", "out", "fc1", "fc2")}

    def run(self, patches: Tensor, tile_shapes: Tensor) -> tuple[Tensor, ...]:
        """Two layers of each kind."""
        layout = tile_layout(tile_shapes, self.ROWS, 2)
        rows = position_rows(self.table, tile_shapes, layout.bounds, self.ROWS)
        hidden = add_product_(rows, patches, self.embedding)
        for _ in range(2):
            qkv = F.linear(layer_norm.layer_norm(hidden, self.offset, self.norm, self.bias, 1e-6), self.qkv)
            add_product_(hidden, self._attend(qkv, layout.bounds), self.out)
            rows = layer_norm.layer_norm(hidden, self.offset, self.norm, self.bias, 1e-6)
            add_product_(hidden, linear_gelu_tanh(rows, self.fc1, self.inner_bias), self.fc2)
        branch = None
        for _ in range(2):
            qkv = self._product("qkv", fp8.layer_norm_fp8(hidden, branch, self.offset, self.norm, self.bias, 1e-6))
            branch = self._product("out", fp8.quantise(self._attend(qkv, layout.bounds)))
            rows_in_fp8 = fp8.layer_norm_fp8(hidden, branch, self.offset, self.norm, self.bias, 1e-6)
            branch = self._product("fc2", fp8.gelu_fp8(self._product("fc1", rows_in_fp8)))
        result = layer_norm.layer_norm(hidden + branch, None, self.norm, self.bias, 1e-6)
        return result, layout.bounds, layout.gather_index, layout.is_padding

    def _attend(self, qkv: Tensor, bounds: Tensor) -> Tensor:
        return attention(*qkv.unflatten(-1, (3, self.heads, -1)).unbind(1), bounds, 1024)

    def _product(self, name: str, rows: Fp8Rows) -> Tensor:
        return fp8.fp8_linear(rows, self.in_fp8[name], None, BF16)


BATCHES = [[(32, 32), (16, 16)], [(16, 16)] * 4, [(24, 32), (10, 8), (16, 24)], [(2, 2)], [(32, 32)]]
"""Rows and columns of the tiles of a batch; the slots behind them are unused."""


def encoder_inputs(number: int) -> Inputs:
    """Other patches, of other tiles."""
    tiles = torch.zeros(EncoderLayers.TILES, 2, dtype=torch.int64)
    batch = BATCHES[number % len(BATCHES)]
    tiles[: len(batch)] = torch.tensor(batch)
    return random(EncoderLayers.ROWS, 768, seed=number), tiles.cuda()


@needs_hopper
@pytest.mark.parametrize(("width", "inner", "heads"), [(768, 3072, 12), (1152, 4304, 16)])
@torch.inference_mode()
def test_overlapping_layers_of_the_encoder_on_two_streams_give_the_bits_of_layers_in_order(
    width: int, inner: int, heads: int
) -> None:
    inputs, layers = [encoder_inputs(number) for number in range(REPLAYS)], EncoderLayers(width, inner, heads)
    in_order = record_in_order(layers.run, inputs[0])
    expected = [in_order.replay(given) for given in inputs]
    torch.cuda.synchronize()
    recordings = [record(layers.run, inputs[0]) for _ in range(2)]
    ours: list[list[list[Tensor]]] = [[], []]
    for number in range(REPLAYS):
        for recording, results, given in zip(recordings, ours, (inputs[number], inputs[-1 - number]), strict=True):
            results.append(recording.replay(given))
    assert_same_bits(ours[0], expected)
    assert_same_bits(ours[1], expected[::-1])

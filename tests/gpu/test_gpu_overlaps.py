"""Chains of kernels that overlap, at true sizes in captured graphs.

Every replay has other inputs, so what is read before it was written, or written before it was read, shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    layer_norm,
    norm,
    rotary_cache,
    short_convolution_step,
)
from foveate.kernels.attention import attention
from foveate.kernels.fp8 import Fp8Rows
from foveate.kernels.gated import gated_product, small_product
from foveate.kernels.linear import add_product_, linear_gelu_tanh
from foveate.kernels.packed_convolution import packed_convolution
from foveate.kernels.position_rows import position_rows
from foveate.kernels.prefill_attention import prefill_attention
from foveate.kernels.rotary_cache import CacheRows, HeadNorms
from foveate.kernels.tile_layout import tile_layout
from tests.gpu.noise import BF16, LANGUAGE, PAGE_TOKENS, needs_hopper, random

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

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

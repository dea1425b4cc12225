"""What `benchmarks/kernel_times.py` measures: for each kernel its twin and the libraries' ways, on the same numbers."""

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.checkpoints import layout
from foveate.checkpoints.writing import write_settings
from foveate.kernels import (
    availability,
    decode_attention,
    fp8,
    gated,
    layer_norm,
    linear,
    norm,
    rotary_cache,
    short_convolution_step,
)
from foveate.kernels.attention import attention
from foveate.kernels.decode_attention import decode_attention_reference, decode_attention_triton, split_count
from foveate.kernels.gated import ProductForm
from foveate.kernels.rotary_cache import CacheRows, HeadNorms
from foveate.models.caches import CacheTensors, DecodeBatch
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.fp8_layers import fp8_layers
from foveate.models.lfm2_vl.layout import packed_layout
from foveate.models.lfm2_vl.model import Lfm2VlModel, empty_model
from foveate.models.lfm2_vl.vision import VisionTower

Launch = Callable[[], Tensor]

DEVICE, BF16 = torch.device("cuda"), torch.bfloat16
MODELS = {"450M": "LFM2.5-VL-450M", "3B": "LFM2.5-VL-3B"}
LONGEST = 1024
"""Patches of a full tile."""
PAGE_TOKENS = 64
MOST_POSITIONS = 128000
VOCABULARY = 65536
INNER = {768: 3072, 1152: 4304}
"""The width between the two products of an encoder layer's FFN, by the layer's own width."""
COLD_BYTES = 2**28
"""Weights that are read in turn, so that none is still in the cache: the L2 of an H200 holds a fifth of it."""


@dataclass(frozen=True)
class Case:
    """One piece of work, done in several ways."""

    kernel: str
    """Which kernel is asked about."""
    shape: str
    """The sizes, in words."""
    ways: dict[str, list[Launch]]
    """By name, ours first. Several launches of one way work on several copies of the weights, in turn. Only the first
    call is compared: some ways write in place."""
    exact: Tensor
    """The result in float32 or wider."""
    num_bytes: int
    """Bytes that one launch has to read and write."""


def random(*shape: int, dtype: torch.dtype = BF16, seed: int = 0) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed)).to(dtype)


def in_order(launch: Launch) -> Launch:
    """The same work with every launch behind the end of the one before it."""

    def run() -> Tensor:
        with mock.patch.object(availability, "can_overlap", return_value=False):
            return launch()

    return run


def random_model(name: str) -> Lfm2VlModel:
    """A model of true sizes: weights that keep a row's size, norms of ones, small biases."""
    with tempfile.TemporaryDirectory() as folder:
        write_settings(Path(folder), layout(MODELS[name]), "bfloat16")
        model = empty_model(read_model_config(Path(folder)), device=DEVICE, dtype=BF16)
    for weight_name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.fill_(1.0 if "norm" in weight_name and weight_name.endswith("weight") else 0.01)
        else:
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return model


def encoder_pieces(rows: int, width: int) -> Iterator[Case]:
    """Norms and residual products of the vision encoder."""
    hidden, branch, mixed = random(rows, width), random(rows, width, seed=1), random(rows, width, seed=2)
    weight, bias = random(width, seed=3), random(width, seed=4)
    offset, square = bias.float(), random(width, width, seed=5) * width**-0.5
    shape, row_bytes = f"{rows} x {width}", 2 * rows * width
    exact = F.layer_norm(hidden.double() + offset, (width,), weight.double(), bias.double(), 1e-6)
    plain = partial(F.layer_norm, normalized_shape=(width,), weight=weight, bias=bias, eps=1e-6)
    ours = partial(layer_norm.layer_norm_triton, hidden, offset, weight, bias, 1e-6)
    ways: dict[str, list[Launch]] = {
        "ours, with offset": [ours],
        "ours, in order": [in_order(ours)],
        "twin": [partial(layer_norm.layer_norm_reference, hidden, offset, weight, bias, 1e-6)],
        "torch, bias added before": [lambda: plain(hidden + bias)],
    }
    for warps in (1, 2, 4):
        ways[f"{warps} warps"] = [
            partial(layer_norm.layer_norm_triton, hidden, offset, weight, bias, 1e-6, warps=warps)
        ]
    yield Case("layer_norm", shape, ways, exact, 2 * row_bytes)

    inside, no_bias = hidden.clone(), torch.zeros_like(bias)
    exact = hidden.double() + mixed.double() @ square.double().T
    ways = {
        "ours, in place": [partial(linear.add_product_, inside, mixed, square)],
        "torch, product and sum": [lambda: hidden + F.linear(mixed, square, no_bias)],
    }
    yield Case("add_product_", shape, ways, exact, 3 * row_bytes + square.nbytes)

    yield from encoder_roundings(hidden, branch, offset, weight, bias)


def encoder_roundings(hidden: Tensor, branch: Tensor, offset: Tensor, weight: Tensor, bias: Tensor) -> Iterator[Case]:
    """Rows to float8: as they are, behind a GELU, and behind a norm. Compared are the float8 numbers."""
    rows, width = hidden.shape
    for used in (width, INNER[width]):
        given, shape = random(rows, used, seed=6), f"{rows} x {used}"
        for name, ours, twin, exact in (
            ("quantise to fp8", fp8.quantise_triton, fp8.quantise_reference, given.double()),
            ("gelu_fp8", fp8.gelu_fp8_triton, fp8.gelu_fp8_reference, F.gelu(given.double(), approximate="tanh")),
        ):
            ways = rounding_ways(partial(partial, ours, given), partial(twin, given))
            yield Case(name, shape, ways, over_the_range(exact), 3 * rows * used)
    twins = hidden.clone()
    exact = F.layer_norm((hidden + branch).double() + offset, (width,), weight.double(), bias.double(), 1e-6)
    ways = rounding_ways(
        lambda: partial(fp8.layer_norm_fp8_triton, hidden.clone(), branch, offset, weight, bias, 1e-6),
        partial(fp8.layer_norm_fp8_reference, twins, branch, offset, weight, bias, 1e-6),
    )
    yield Case("layer_norm_fp8", f"{rows} x {width}", ways, over_the_range(exact), 7 * rows * width)


def rounding_ways(
    new_rounding: Callable[[], Callable[..., fp8.Fp8Rows]], twin: Callable[[], fp8.Fp8Rows]
) -> dict[str, list[Launch]]:
    """A kernel with as many warps as it takes by itself, and with others, each on rows of its own, and its twin."""
    ways: dict[str, list[Launch]] = {"twin": [lambda: twin().values]}
    for warps in (None, 1, 2, 4, 8):
        rounding = partial(new_rounding(), **({} if warps is None else {"warps": warps}))
        ways[f"{warps} warps" if warps else "ours"] = [lambda rounding=rounding: rounding().values]  # type: ignore[misc]
    return ways


def over_the_range(rows: Tensor) -> Tensor:
    """Rows as float8 numbers stand for them, the largest of each 448."""
    return rows / rows.abs().amax(-1, keepdim=True) * fp8.LARGEST


def encoder_products(rows: int, inputs: int, outputs: int) -> Iterator[Case]:
    """The products of a so400m layer in bfloat16 and float8, operands ready."""
    given, weight = random(rows, inputs), random(outputs, inputs, seed=1) * inputs**-0.5
    left, right = fp8.quantise(given), fp8.quantise(weight)
    ways: dict[str, list[Launch]] = {
        "ours, float8": [partial(fp8.fp8_linear, left, right, None, BF16)],
        "torch, bfloat16": [partial(F.linear, given, weight)],
        "float8, rows rounded too": [lambda: fp8.fp8_linear(fp8.quantise(given), right, None, BF16)],
    }
    exact = given.double() @ weight.double().T
    num_bytes = rows * (inputs + 2 * outputs) + inputs * outputs
    yield Case("fp8_linear", f"{rows} x {inputs} to {outputs}", ways, exact, num_bytes)


def towers(tower: VisionTower, name: str, tiles: int) -> Iterator[Case]:
    """A whole vision tower: as served and in float8, with and without overlap, and with every sum by itself."""
    shapes = torch.tensor([[32, 32]] * tiles, device=DEVICE)
    patches = random(1024 * tiles, tower.patch_embedding.in_features)
    tower.keep_offsets()
    in_fp8, wide = copy.deepcopy(tower), copy.deepcopy(tower).float()
    in_fp8.fp8_layers = fp8_layers(list(in_fp8.layers))

    def served(used: VisionTower) -> Tensor:
        return used(patches, packed_layout(shapes, len(patches), 2), LONGEST)

    weights = sum(weight.nbytes for weight in tower.parameters())
    ways: dict[str, list[Launch]] = {
        "ours": [partial(served, tower)],
        "ours, in order": [in_order(partial(served, tower))],
        "plain sums and norms": [partial(plain_tower, tower, patches, shapes)],
        "ours, float8": [partial(served, in_fp8)],
        "ours, float8, in order": [in_order(partial(served, in_fp8))],
    }
    yield Case("tower", f"{name}, {tiles} full tiles", ways, plain_tower(wide, patches.float(), shapes), weights)


def plain_tower(tower: VisionTower, patches: Tensor, shapes: Tensor) -> Tensor:
    """The tower on the packed attention, with torch's norms, and a sum behind every product."""
    layout = packed_layout(shapes, len(patches), 2)
    hidden = tower.patch_embedding(patches) + tower.position(layout.patch_grid)
    for layer in tower.layers:
        qkv = layer.qkv(layer.attention_norm(hidden)).unflatten(-1, (3, layer.num_heads, layer.head_size))
        hidden = hidden + layer.out(attention(*qkv.unbind(1), layout.bounds, LONGEST))
        inner = linear.linear_gelu_tanh(layer.mlp_norm(hidden), layer.fc1.weight, layer.fc1.bias)
        hidden = hidden + layer.fc2(inner)
    return tower.norm(hidden)


def decode_pieces(sequences: int, width: int, heads: int, inner: int) -> Iterator[Case]:
    """What a decode step does between its products."""
    hidden, branch, weight = random(sequences, width), random(sequences, width, seed=1), random(width, seed=2)
    shape, row_bytes = f"{sequences} x {width}", 2 * sequences * width
    exact = norm.add_rms_norm_reference((hidden + branch).double(), None, weight.double(), 1e-5)[1]

    def ours() -> Tensor:
        return norm.add_rms_norm_triton(hidden, branch, weight, 1e-5)[1]

    ways: dict[str, list[Launch]] = {
        "ours": [ours],
        "ours, in order": [in_order(ours)],
        "twin": [lambda: norm.add_rms_norm_reference(hidden, branch, weight, 1e-5)[1]],
        "torch rms_norm": [lambda: F.rms_norm(hidden + branch, (width,), weight, 1e-5)],
    }
    yield Case("add_rms_norm", shape, ways, exact, 4 * row_bytes)

    qkv, positions = random(sequences, (heads + 16) * 64), torch.arange(sequences, device=DEVICE) * 500
    norms = HeadNorms(random(64, seed=1), random(64, seed=2), 1e-5, 1e6, MOST_POSITIONS)
    cache = CacheRows(*(torch.zeros(4096, 8, 64, dtype=BF16, device=DEVICE) for _ in range(2)), positions % 4096)
    wide = replace(norms, query=norms.query.float(), key=norms.key.float())
    wide_cache = CacheRows(cache.keys.float(), cache.values.float(), cache.write_rows)
    exact = rotary_cache.rotate_and_cache_reference(qkv.float(), positions, wide, wide_cache)
    ways = {
        "ours": [partial(rotary_cache.rotate_and_cache_triton, qkv, positions, norms, cache)],
        "twin": [partial(rotary_cache.rotate_and_cache_reference, qkv, positions, norms, cache)],
    }
    yield Case("rotate_and_cache", f"{sequences} x {heads} + 16 heads", ways, exact, 2 * qkv.nbytes)

    gates, states, taps = random(sequences, 3 * width), random(sequences, 2, width, seed=1), random(width, 3, seed=2)
    slots, step = torch.arange(sequences, device=DEVICE), short_convolution_step
    exact = step.short_convolution_step_reference(gates.float(), states.float(), slots, taps.float(), None)
    ways = {
        "ours": [partial(step.short_convolution_step_triton, gates, states.clone(), slots, taps, None)],
        "twin": [partial(step.short_convolution_step_reference, gates, states.clone(), slots, taps, None)],
    }
    yield Case("short_convolution_step", shape, ways, exact, 4 * row_bytes + 2 * states.nbytes)

    gate_up = random(sequences, 2 * inner)
    ways = {
        "ours": [partial(gated.silu_multiply_triton, gate_up)],
        "twin": [partial(gated.silu_multiply_reference, gate_up)],
    }
    exact = gated.silu_multiply_reference(gate_up.double())
    yield Case("silu_multiply", f"{sequences} x {inner}", ways, exact, gate_up.nbytes * 3 // 2)


def decode_contexts(sequences: int, heads: int, context: int) -> Iterator[Case]:
    """Attention of one new token; the library's reads a dense cache, as if gathering pages cost nothing."""
    pages = context // PAGE_TOKENS
    keys, values = (random(sequences * pages, PAGE_TOKENS, 8, 64, seed=seed) for seed in (1, 2))
    tables = torch.randperm(sequences * pages, device=DEVICE).int().view(sequences, pages)
    lengths, query = torch.full((sequences,), context, dtype=torch.int32, device=DEVICE), random(sequences, heads, 64)
    arguments = (query, keys, values, tables, lengths)
    dense = [cache[tables.long()].flatten(1, 2).transpose(1, 2).contiguous() for cache in (keys, values)]
    chosen = split_count(sequences, 8, context)

    def library() -> Tensor:
        return F.scaled_dot_product_attention(query[:, :, None], *dense, enable_gqa=True).flatten(1)

    ways: dict[str, list[Launch]] = {f"ours, {chosen} splits": [partial(decode_attention_triton, *arguments)]}
    for splits in {max(chosen // 4, 1), min(chosen * 4, 64)} - {chosen}:
        ways[f"{splits} splits"] = [partial(decode_attention_triton, *arguments, splits=splits)]
    for warps, stages, carries_page in (
        (4, 3, False),
        (4, 5, False),
        (2, 3, False),
        (2, 3, True),
        (2, 4, True),
        (4, 3, True),
        (1, 3, True),
    ):
        name = f"{warps} warps, {stages} stages{', carried' if carries_page else ''}"
        way = partial(decode_attention_triton, *arguments, warps=warps, stages=stages, carries_page=carries_page)
        ways[name] = [way]
    ways["ours, in order"] = [partial(decode_attention_triton, *arguments, overlaps=False)]
    # What a captured step sees: page tables for the longest context there may be.
    tables_of_all = F.pad(tables, (0, MOST_POSITIONS // PAGE_TOKENS - pages))
    ways["ours, captured tables"] = [partial(decode_attention_triton, query, keys, values, tables_of_all, lengths)]
    ways["torch SDPA, dense"] = [library]
    exact = decode_attention_reference(query.double(), keys.double(), values.double(), tables, lengths)
    yield Case("decode_attention", f"{sequences} x {heads} heads, {context} tokens", ways, exact, 2 * keys.nbytes)


FORMS = {
    "2 x 1024": ProductForm(),
    "2 x 1024, evict first": ProductForm(eviction="evict_first"),
    "2 x 1024, 2 steps in one": ProductForm(unroll=2),
    "2 x 1024, 2 warps": ProductForm(warps=2),
    "1 x 1024, 1 warp": ProductForm(outputs=1, warps=1),
    "2 x 512, 1 warp, 3 in one": ProductForm(columns=512, warps=1, unroll=3),
    "1 x 2048": ProductForm(outputs=1, columns=2048),
    "2 x 1024, overlapped": ProductForm(overlaps=True),
}
"""Outputs and columns of a program's step; 4 warps where nothing is said. Overlapped launches read their weights while
the one before still runs: in a model that is a norm, here it is the same product."""


def small_products(rows: int, width: int, inner: int, projection: int) -> Iterator[Case]:
    """Products of very few rows, their weights cold as in a decode step."""
    given, gate_up = random(rows, width), cold(2 * inner, width)
    exact = gated.silu_multiply_reference(given.double() @ gate_up[0].double().T)
    ways: dict[str, list[Launch]] = {}
    for name, form in FORMS.items():
        ways[f"ours, {name}"] = [partial(gated.gated_product_triton, given, w, form=form) for w in gate_up]
    ways["torch and our gate"] = [lambda w=w: gated.silu_multiply_triton(F.linear(given, w)) for w in gate_up]  # type: ignore[misc]
    yield Case("gated_product", f"{rows} x {width} to 2 x {inner}", ways, exact, gate_up[0].nbytes)
    del gate_up
    for inputs, outputs in ((inner, width), (width, projection), (width, width), (width, VOCABULARY)):
        rows_in, weights = random(rows, inputs), cold(outputs, inputs)
        ways = {}
        for name, form in FORMS.items():
            ways[f"ours, {name}"] = [partial(gated.small_product_triton, rows_in, w, form=form) for w in weights]
        ways["torch"] = [partial(F.linear, rows_in, weight) for weight in weights]
        exact = rows_in.double() @ weights[0].double().T
        yield Case("small_product", f"{rows} x {inputs} to {outputs}", ways, exact, weights[0].nbytes)


def cold(outputs: int, inputs: int) -> list[Tensor]:
    """Enough weights that one is out of the cache before its turn comes again."""
    copies = min(max(COLD_BYTES // (2 * outputs * inputs), 2), 20)
    return [random(outputs, inputs, seed=seed) * inputs**-0.5 for seed in range(copies)]


def decode_steps(model: Lfm2VlModel, name: str, sequences: int, context: int) -> Iterator[Case]:
    """A whole decode step without sampling: embeddings in, logits out; compared with the twins in the same type.

    Each way moves on convolution states of its own; the rows it writes into the pages are the same for all.
    """
    language, pages = model.language, context // PAGE_TOKENS
    caches = language.new_caches(pages=sequences * pages, page_tokens=PAGE_TOKENS, slots=sequences)
    caches.keys.normal_()
    caches.values.normal_()
    positions = torch.full((sequences,), context - 1, device=DEVICE)
    tables = torch.arange(sequences * pages, device=DEVICE, dtype=torch.int32).view(sequences, pages)
    batch = DecodeBatch(
        positions=positions,
        write_rows=tables[:, -1].long() * PAGE_TOKENS + PAGE_TOKENS - 1,
        page_tables=tables,
        lengths=(positions + 1).int(),
        slots=torch.arange(sequences, device=DEVICE),
    )
    embeddings = random(sequences, language.config.hidden_size)

    def step(own: CacheTensors) -> Tensor:
        return language.logits(language(embeddings, batch, own))

    def new_step() -> Launch:
        return partial(step, replace(caches, states=caches.states.clone()))

    with ExitStack() as twins:
        for module in (decode_attention, gated, norm, rotary_cache, short_convolution_step):
            twins.enter_context(mock.patch.object(module, "runs_triton", return_value=False))
        exact = new_step()()
    num_bytes = sum(weight.nbytes for weight in language.parameters()) + caches.keys.nbytes + caches.values.nbytes
    ways: dict[str, list[Launch]] = {
        "ours": [new_step()],
        "ours, in order": [in_order(new_step())],
    }
    yield Case("decode step", f"{name}, {sequences} x {context} tokens", ways, exact, num_bytes)

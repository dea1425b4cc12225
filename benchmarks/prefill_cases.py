"""Pieces of work of a prefill for `kernel_times.py`, each in several ways."""

from collections.abc import Iterator
from functools import partial
from itertools import accumulate

import torch
from kernel_cases import DEVICE, PAGE_TOKENS, Case, random
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.attention_tiles import AttentionTiles
from foveate.kernels.packed_convolution import packed_convolution_reference, packed_convolution_triton
from foveate.kernels.prefill_attention import prefill_attention_reference, prefill_attention_triton

TILES = {
    "64 x 64, 4 warps, 2 stages": AttentionTiles(64, 64, 4, 2),
    "64 x 64, 4 warps, 3 stages": AttentionTiles(64, 64, 4, 3),
    "64 x 64, 4 warps, 4 stages": AttentionTiles(64, 64, 4, 4),
    "128 x 64, 8 warps, 2 stages": AttentionTiles(128, 64, 8, 2),
    "128 x 64, 8 warps, 3 stages": AttentionTiles(128, 64, 8, 3),
    "128 x 64, 4 warps, 3 stages": AttentionTiles(128, 64, 4, 3),
    "128 x 128, 8 warps, 2 stages": AttentionTiles(128, 128, 8, 2),
}


def prefill_attentions(heads: int, new: list[int], cached: int = 0, budget: int | None = None) -> Iterator[Case]:
    """Causal attention of new tokens; the library's takes dense keys and values, as if gathering pages cost nothing."""
    tokens, pages = budget or sum(new), [-(-(cached + count) // PAGE_TOKENS) for count in new]
    query = random(tokens, heads, 64)
    keys, values = (random(sum(pages), PAGE_TOKENS, 8, 64, seed=seed) for seed in (1, 2))
    tables = torch.zeros(len(new), max(pages), dtype=torch.int32)
    order = torch.randperm(sum(pages)).int().split(pages)
    for row, own in zip(tables, order, strict=True):
        row[: len(own)] = own
    tables = tables.to(DEVICE)
    bounds = torch.tensor([0, *accumulate(new)], dtype=torch.int32, device=DEVICE)
    before = torch.full((len(new),), cached, dtype=torch.int32, device=DEVICE)
    arguments = (query, keys, values, tables, bounds, before)
    ways = {"ours, as chosen": [partial(prefill_attention_triton, *arguments)]}
    for name, tiles in TILES.items():
        ways[name] = [partial(prefill_attention_triton, *arguments, tiles=tiles)]
    if len(new) == 1 and not cached and tokens == new[0]:
        rows = tables[0].long()
        dense = [cache[rows].flatten(0, 1)[: new[0]].transpose(0, 1)[None].contiguous() for cache in (keys, values)]

        def library() -> Tensor:
            shown = query.transpose(0, 1)[None]
            attended = F.scaled_dot_product_attention(shown, *dense, is_causal=True, enable_gqa=True)
            return attended[0].transpose(0, 1).flatten(1)

        ways["torch SDPA, dense"] = [library]
    exact = prefill_attention_reference(query.float(), keys.float(), values.float(), tables, bounds, before)
    shape = f"{len(new)} x {new[0]} tokens behind {cached}, {heads} heads" + (f", in {budget}" if budget else "")
    yield Case("prefill_attention", shape, ways, exact, 2 * query.nbytes + 2 * keys.nbytes)


def packed_convolutions(width: int, new: list[int]) -> Iterator[Case]:
    """The gated convolution of packed rows."""
    tokens = sum(new)
    gates, states, taps = random(tokens, 3 * width), random(len(new), 2, width, seed=1), random(width, 3, seed=2)
    slots = torch.arange(len(new), device=DEVICE)
    bounds = torch.tensor([0, *accumulate(new)], dtype=torch.int32, device=DEVICE)
    exact = packed_convolution_reference(gates.float(), states.float(), slots, bounds, taps.float(), None)
    ways = {"ours": [partial(packed_convolution_triton, gates, states.clone(), slots, bounds, taps, None)]}
    yield Case("packed_convolution", f"{tokens} x {width}", ways, exact, 4 * tokens * width * 2)

"""Causal attention of packed new tokens over their sequences' pages, for prefills.

Bounds, lengths and page tables are on the device, so a captured prefill replays with whatever they hold by then.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.attention_tiles import SMALLEST_BLOCK, AttentionTiles
from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.paged_arguments import check_paged, power_of_two

__all__ = ["prefill_attention", "prefill_attention_reference", "prefill_attention_triton", "prefill_tiles"]

_LARGEST_MASK = 1 << 22
"""Entries of the twin's mask; beyond that it goes without."""


def prefill_attention(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, bounds: Tensor, cached: Tensor
) -> Tensor:
    """Attend from the new tokens of each sequence, scaled by `head_size**-0.5`, to what it holds up to each of them.

    query: `[tokens, heads, head_size]`, the new tokens of all sequences one behind the other. key_pages, value_pages:
    `[pages, page_tokens, key-value heads, head_size]`; the keys and values of the new tokens are in there already.
    page_tables: `[sequences, most pages]` int32, each sequence's pages in the order of its tokens; what stands behind
    the last one needed is not read. bounds: `[sequences + 1]` int32; sequence `s` has the new tokens `bounds[s]` to
    `bounds[s + 1]`, and the first `cached[s] + i + 1` tokens of its context are visible to number `i` of them. Bounds
    begin with 0 and never fall; an unused sequence repeats one. cached: `[sequences]` int32, tokens of each sequence in
    front of its new ones.

    Returns `[tokens, heads * head_size]`. Tokens behind the last bound are padding: nothing is read there and zeros are
    written.
    """
    if runs_triton(query, key_pages):
        return prefill_attention_triton(query, key_pages, value_pages, page_tables, bounds, cached)
    return prefill_attention_reference(query, key_pages, value_pages, page_tables, bounds, cached)


def prefill_attention_reference(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, bounds: Tensor, cached: Tensor
) -> Tensor:
    """What `prefill_attention` computes, in plain torch, one sequence after the other.

    Bounds and lengths are read on the host: on a GPU this waits for the device and cannot be captured.
    """
    (tokens, heads, head_size), page_tokens = query.shape, key_pages.shape[1]
    out = query.new_zeros(tokens, heads * head_size)
    for sequence, ((begin, end), old) in enumerate(zip(pairwise(bounds.tolist()), cached.tolist(), strict=True)):
        if begin == end:
            continue
        new, length = end - begin, old + end - begin
        pages = page_tables[sequence, : -(-length // page_tokens)].long()
        # [1, key-value heads, length, head_size]
        keys, values = (cache[pages].flatten(0, 1)[:length].transpose(0, 1)[None] for cache in (key_pages, value_pages))
        attended = F.scaled_dot_product_attention(
            query[begin:end].transpose(0, 1)[None],
            keys,
            values,
            attn_mask=_causal_mask(new, old, query) if old and new > 1 else None,
            is_causal=not old and new > 1,
            enable_gqa=heads != key_pages.shape[2],
        )
        out[begin:end] = attended[0].transpose(0, 1).flatten(1)
    return out


def _causal_mask(new: int, old: int, query: Tensor) -> Tensor:
    """New token `i` sees `old + i + 1` tokens."""
    is_large = new * (old + new) > _LARGEST_MASK
    if is_large and query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        # For flash attention, which takes no mask from memory. Imported here: it takes a second, for torch's compiler.
        from torch.nn.attention.bias import causal_lower_right

        return causal_lower_right(new, old + new)
    return torch.ones(new, old + new, dtype=torch.bool, device=query.device).tril(old)


def prefill_tiles(head_size: int, dtype: torch.dtype) -> AttentionTiles:
    """The block sizes, where a row is one query head of one token.

    Larger programs read keys and values half as often and were slower all the same, from 281 tokens to 32 prompts of as
    many (`benchmarks/kernel_times.py`).
    """
    if dtype == torch.float32:
        return AttentionTiles(block_rows=32, block_columns=32, warps=4, stages=2)
    return AttentionTiles(64, 64, warps=4, stages=2 if head_size > 96 else 3)


def prefill_attention_triton(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    page_tables: Tensor,
    bounds: Tensor,
    cached: Tensor,
    *,
    tiles: AttentionTiles | None = None,
) -> Tensor:
    """`prefill_attention` in one launch that reads nothing back to the host; its grid depends on shapes alone.

    tiles: block sizes, by default `prefill_tiles`. A row is one query head of one token, a column one token of the
    context. Pages that hold whole blocks of columns are the fastest. A chunk gets the same bits in any company, as
    long as the tiles are the same.

    Raises ValueError for shapes, types or layouts other than those of `prefill_attention`, contiguous.
    """
    from foveate.kernels.packed_rows_kernel import bound_lanes
    from foveate.kernels.prefill_attention_kernel import prefill_attention_kernel

    _check(query, key_pages, value_pages, page_tables, bounds, cached)
    tokens, heads, head_size = query.shape
    _, page_tokens, key_heads, _ = key_pages.shape
    sequences, group = len(cached), heads // key_heads
    tiles = tiles or prefill_tiles(head_size, query.dtype)
    block_group = power_of_two(group)
    block_queries = max(tiles.block_rows // block_group, 1)
    out = query.new_empty(tokens, heads * head_size)
    if out.numel() == 0:
        return out
    with torch.cuda.device_of(query):
        prefill_attention_kernel[key_heads, tokens // block_queries + sequences + 1](
            query,
            key_pages,
            value_pages,
            page_tables,
            bounds,
            cached,
            out,
            tokens,
            sequences,
            page_tables.stride(0),
            head_size**-0.5 * math.log2(math.e),
            key_heads=key_heads,
            group=group,
            head_size=head_size,
            page_tokens=page_tokens,
            lanes=bound_lanes(sequences),
            block_queries=block_queries,
            block_group=block_group,
            block_tokens=tiles.block_columns,
            channels=max(SMALLEST_BLOCK, power_of_two(head_size)),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            maxnreg=tiles.registers,
            **launch_options(query.device, tokens),
        )
    return out


def _check(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, bounds: Tensor, cached: Tensor
) -> None:
    """Raises ValueError for what the kernel does not take."""
    check_paged(query, key_pages, value_pages, page_tables, "tokens", bounds=bounds, cached=cached)
    sequences = page_tables.shape[0]
    for name, tensor, size in (("bounds", bounds, sequences + 1), ("cached", cached, sequences)):
        if tensor.shape != (size,) or tensor.dtype != torch.int32:
            raise ValueError(f"{name} must be int32 [{size}]: got {tensor.dtype} {list(tensor.shape)}.")

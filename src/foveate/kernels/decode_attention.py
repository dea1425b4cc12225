"""Attention of one new token a sequence over its pages, for decoding.

Page tables and lengths are on the device, so a captured decode step replays with whatever they hold by then.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.attention_tiles import SMALLEST_BLOCK
from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.paged_arguments import check_paged, power_of_two

__all__ = ["decode_attention", "decode_attention_reference", "decode_attention_triton", "split_count"]

PROGRAMS = 256
"""Programs that a launch should have: almost two for each of the 132 multiprocessors of an H100 or H200. Contexts are
not cut where there are as many without."""

MOST_SPLITS = 64
"""Splits of one context, all of which one small program joins."""

BLOCK_TOKENS = 64
"""Tokens whose keys and values a program reads in one step."""

WARPS = 2
"""Of a program: more of them wait for each other in every product of 16 query rows."""

STAGES = 4
"""Steps of a program that overlap. Where a page's number is not carried along, it has to be there before its keys,
which takes up stages of its own: with 3 only one block of keys and values is on its way at a time."""


def decode_attention(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, lengths: Tensor
) -> Tensor:
    """Attend from one query a sequence, scaled by `head_size**-0.5`, to the sequence's context.

    query: `[sequences, heads, head_size]`. key_pages, value_pages: `[pages, page_tokens, key-value heads, head_size]`.
    page_tables: `[sequences, most pages]` int32, each sequence's pages in the order of its tokens; what stands behind
    the last one needed is not read. lengths: `[sequences]` int32, at least 1: tokens of each context, the new one
    included, whose key and value are in the pages already. Returns `[sequences, heads * head_size]`.
    """
    if runs_triton(query, key_pages):
        return decode_attention_triton(query, key_pages, value_pages, page_tables, lengths)
    return decode_attention_reference(query, key_pages, value_pages, page_tables, lengths)


def decode_attention_reference(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, lengths: Tensor
) -> Tensor:
    """What `decode_attention` computes, in plain torch, one sequence after the other.

    The lengths are read on the host: on a GPU this waits for the device and cannot be captured.
    """
    page_tokens, has_groups = key_pages.shape[1], query.shape[1] != key_pages.shape[2]
    out = query.new_empty(query.shape[0], query.shape[1] * query.shape[2])
    for sequence, length in enumerate(lengths.tolist()):
        pages = page_tables[sequence, : -(-length // page_tokens)].long()
        # [1, key-value heads, length, head_size]
        keys, values = (cache[pages].flatten(0, 1)[:length].transpose(0, 1)[None] for cache in (key_pages, value_pages))
        queries = query[sequence][None, :, None]
        out[sequence] = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=has_groups).flatten()
    return out


def split_count(sequences: int, key_heads: int, most_tokens: int) -> int:
    """Into how many splits each context is cut: a power of two, from what a captured graph freezes anyway.

    As many as fill the GPU, and no more than a context of `most_tokens` has blocks. A context of fewer blocks than
    splits leaves the last ones without work.
    """
    wanted = -(-PROGRAMS // max(sequences * key_heads, 1))
    splits = min(wanted, MOST_SPLITS, max(-(-most_tokens // BLOCK_TOKENS), 1))
    return 1 << (splits.bit_length() - 1)


def decode_attention_triton(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    page_tables: Tensor,
    lengths: Tensor,
    *,
    splits: int | None = None,
    warps: int = WARPS,
    stages: int = STAGES,
    carries_page: bool | None = None,
    overlaps: bool | None = None,
) -> Tensor:
    """`decode_attention` in one or two launches that read nothing back to the host; their grids depend on shapes alone.

    splits: a power of two, how many programs share one context; by default `split_count`. It changes the order of the
    sums, so the last bits of a result depend on the size of the batch. warps, stages: of one program, at least 2 stages
    (`attention_kernel` says why). carries_page: whether a program asks for the number of a page while it has the one
    before, instead of in a stage of its own; by default where pages are of whole blocks, as they must be. overlaps:
    whether both launches are set up while the one before each still runs, by default where the device can
    (`foveate.kernels.availability`). A length of 0 gives zeros.

    Raises ValueError for shapes, types or layouts other than those of `decode_attention`, contiguous.
    """
    from foveate.kernels.decode_attention_kernel import decode_attention_kernel, join_splits_kernel

    _check(query, key_pages, value_pages, page_tables, lengths)
    sequences, heads, head_size = query.shape
    _, page_tokens, key_heads, _ = key_pages.shape
    carries_page = page_tokens % BLOCK_TOKENS == 0 if carries_page is None else carries_page
    if carries_page and page_tokens % BLOCK_TOKENS:
        raise ValueError(f"carries_page takes pages of a multiple of {BLOCK_TOKENS} tokens: got {page_tokens}.")
    splits = splits or split_count(sequences, key_heads, page_tables.shape[1] * page_tokens)
    out = query.new_empty(sequences, heads * head_size)
    if out.numel() == 0:
        return out
    parts = (sequences, heads, splits) if splits > 1 else (0,)
    sums = torch.empty(*parts, head_size, dtype=torch.float32, device=query.device)
    peaks, weights = (torch.empty(parts, dtype=torch.float32, device=query.device) for _ in range(2))
    channels, group = max(SMALLEST_BLOCK, power_of_two(head_size)), heads // key_heads
    with torch.cuda.device_of(query):
        decode_attention_kernel[sequences, key_heads, splits](
            query,
            key_pages,
            value_pages,
            page_tables,
            lengths,
            out,
            sums,
            peaks,
            weights,
            page_tables.stride(0),
            head_size**-0.5 * math.log2(math.e),
            group=group,
            head_size=head_size,
            page_tokens=page_tokens,
            splits=splits,
            block_rows=max(SMALLEST_BLOCK, power_of_two(group)),
            block_tokens=BLOCK_TOKENS,
            channels=channels,
            carries_page=carries_page,
            num_warps=warps,
            num_stages=stages,
            **launch_options(query.device, len(query), overlaps),
        )
        if splits > 1:
            join_splits_kernel[sequences * heads,](
                sums,
                peaks,
                weights,
                out,
                head_size=head_size,
                splits=splits,
                channels=channels,
                num_warps=4,
                **launch_options(query.device, len(query), overlaps),
            )
    return out


def _check(query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, lengths: Tensor) -> None:
    """Raises ValueError for what the kernel does not take."""
    check_paged(query, key_pages, value_pages, page_tables, "sequences", lengths=lengths)
    sequences = query.shape[0]
    if page_tables.shape[0] != sequences:
        raise ValueError(f"page_tables must be [{sequences}, pages]: got {list(page_tables.shape)}.")
    if lengths.dtype != torch.int32 or lengths.shape != (sequences,):
        raise ValueError(f"lengths must be int32 [{sequences}]: got {lengths.dtype} {list(lengths.shape)}.")

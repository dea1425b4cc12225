"""The Triton programs behind `foveate.kernels.decode_attention`.

Flash-decoding (https://crfm.stanford.edu/2023/10/12/flashdecoding.html): the context of a sequence is cut into splits
that run at the same time, and a second, small program joins them. The query heads of one key-value head are the rows of
one matrix product, so that keys and values are read once.

As in `attention_kernel`, and for the reason given there, the keys and values of every product come from the
software-pipelined loop.
"""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["decode_attention_kernel", "join_splits_kernel"]


@triton.jit(do_not_specialize=["table_stride"])
def decode_attention_kernel(
    query,
    keys,
    values,
    page_table,
    lengths,
    out,
    sums,
    peaks,
    weights,
    table_stride,
    scale,
    group: tl.constexpr,
    head_size: tl.constexpr,
    page_tokens: tl.constexpr,
    splits: tl.constexpr,
    block_rows: tl.constexpr,
    block_tokens: tl.constexpr,
    channels: tl.constexpr,
    carries_page: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """One split of one sequence's context, for the `group` query heads of one key-value head.

    How long a split is follows from the sequence's own length, so a short one does not leave its work to one program.
    With one split the result goes to `out`; otherwise the unweighted sum, the peak and the weight of the softmax go to
    `sums`, `peaks` and `weights`; a split without tokens has no sum. `scale` includes log2(e).
    """
    if overlaps:
        gdc_launch_dependents()
    sequence, key_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key_heads = tl.num_programs(1)
    if overlaps:
        gdc_wait()
    length = tl.load(lengths + sequence)
    split_tokens = tl.cdiv(tl.cdiv(length, block_tokens), splits) * block_tokens
    begin = split * split_tokens
    end = tl.minimum(length, begin + split_tokens)

    row, channel = tl.arange(0, block_rows), tl.arange(0, channels)
    is_head, is_channel = row < group, channel < head_size
    head = (sequence * key_heads + key_head) * group + row
    queries = tl.load(
        query + head[:, None] * head_size + channel[None, :],
        mask=is_head[:, None] & is_channel[None, :],
        other=0.0,
    )
    peak = tl.full([block_rows], float("-inf"), tl.float32)
    weight = tl.zeros([block_rows], tl.float32)
    total = tl.zeros([block_rows, channels], tl.float32)
    table = page_table + sequence * table_stride
    if carries_page:
        # A block lies in one page, whose number was asked for one block before.
        page = tl.load(table + begin // page_tokens, mask=begin < end, other=0)
    for start in range(begin, end, block_tokens):
        token = start + tl.arange(0, block_tokens)
        is_token = token < end
        if carries_page:
            cache_row = page.to(tl.int64) * page_tokens + start % page_tokens + tl.arange(0, block_tokens)
            following = start + block_tokens
            page = tl.load(table + following // page_tokens, mask=following < end, other=0)
        else:
            pages = tl.load(table + token // page_tokens, mask=is_token, other=0)
            cache_row = pages.to(tl.int64) * page_tokens + token % page_tokens
        offset = (cache_row * key_heads + key_head)[:, None] * head_size + channel[None, :]
        mask = is_token[:, None] & is_channel[None, :]
        key = tl.load(keys + offset, mask=mask, other=0.0)
        scores = tl.dot(queries, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(is_token[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        shrink = tl.exp2(peak - higher)
        exponentials = tl.exp2(scores - higher[:, None])
        weight = weight * shrink + tl.sum(exponentials, 1)
        peak = higher
        value = tl.load(values + offset, mask=mask, other=0.0)
        total = tl.dot(exponentials.to(value.dtype), value, acc=total * shrink[:, None], input_precision="ieee")

    if splits == 1:
        # A sequence of no tokens gets zeros.
        total = total / tl.where(weight > 0, weight, 1.0)[:, None]
        tl.store(
            out + head[:, None] * head_size + channel[None, :],
            total.to(out.dtype.element_ty),
            mask=is_head[:, None] & is_channel[None, :],
        )
    else:
        part = head * splits + split
        tl.store(peaks + part, peak, mask=is_head)
        tl.store(weights + part, weight, mask=is_head)
        tl.store(
            sums + part[:, None] * head_size + channel[None, :],
            total,
            mask=is_head[:, None] & is_channel[None, :] & (begin < end),
        )


@triton.jit
def join_splits_kernel(
    sums,
    peaks,
    weights,
    out,
    head_size: tl.constexpr,
    splits: tl.constexpr,
    channels: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Joins the splits of one head of one sequence. A split without tokens has the peak -inf and counts for nothing."""
    if overlaps:
        gdc_launch_dependents()
    head = tl.program_id(0)
    split, channel = tl.arange(0, splits), tl.arange(0, channels)
    if overlaps:
        gdc_wait()
    own = tl.load(peaks + head * splits + split)
    peak = tl.max(own, 0)
    share = tl.exp2(own - tl.where(peak == float("-inf"), 0.0, peak))
    weight = tl.sum(share * tl.load(weights + head * splits + split), 0)
    part = tl.load(
        sums + (head * splits + split)[:, None] * head_size + channel[None, :],
        mask=(own != float("-inf"))[:, None] & (channel < head_size)[None, :],
        other=0.0,
    )
    total = tl.sum(part * share[:, None], 0) / tl.where(weight > 0, weight, 1.0)
    tl.store(out + head * head_size + channel, total.to(out.dtype.element_ty), mask=channel < head_size)

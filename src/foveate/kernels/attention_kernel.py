"""The Triton program behind `foveate.kernels.attention.packed_attention`.

One program computes `block_rows` query rows of one head. The grid is a fixed number of programs for fixed shapes; which
rows a program owns it reads from the sequence bounds on the device, so a captured launch serves every segmentation.

The method is the one-pass softmax of FlashAttention (Dao 2023, https://arxiv.org/abs/2307.08691), in powers of two.

Every matrix product takes its keys and values from the software-pipelined loop. A product outside it, or in a loop of
one stage, reads shared memory at a fixed address, and for such addresses ptxas 12.8, which comes with Triton 3.6, can
put a wrong register into the matrix descriptor (seen on an H200 with heads of 72: wrong values or an illegal address).
"""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from foveate.kernels.packed_rows_kernel import own_rows

__all__ = ["packed_attention_kernel"]


@triton.jit
def _load_block(
    base,
    row_stride,
    count,
    first_channel: tl.constexpr,
    channels: tl.constexpr,
    block: tl.constexpr,
    head_size: tl.constexpr,
):
    """Loads `[block, channels]` values; rows at `count` or beyond and channels beyond the head are 0, and not read."""
    row = tl.arange(0, block)[:, None]
    channel = first_channel + tl.arange(0, channels)[None, :]
    mask = row < count
    if first_channel + channels > head_size:
        mask = mask & (channel < head_size)
    return tl.load(base + row * row_stride + channel, mask=mask, other=0.0)


@triton.jit
def _store_block(
    base,
    row_stride,
    count,
    values,
    first_channel: tl.constexpr,
    channels: tl.constexpr,
    block: tl.constexpr,
    head_size: tl.constexpr,
):
    """Stores `[block, channels]` values, but for rows at `count` or beyond and channels beyond the head."""
    row = tl.arange(0, block)[:, None]
    channel = first_channel + tl.arange(0, channels)[None, :]
    mask = (row < count) & (channel < head_size)
    tl.store(base + row * row_stride + channel, values.to(base.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows", "slots", "query_octets", "key_octets", "value_octets", "out_octets"])
def packed_attention_kernel(
    query,
    key,
    value,
    out,
    bounds,
    rows,
    slots,
    query_octets,
    key_octets,
    value_octets,
    out_octets,
    scale,
    head_size: tl.constexpr,
    main_channels: tl.constexpr,
    tail_channels: tl.constexpr,
    lanes: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Attention of `block_rows` rows of one head with their own sequence, or zeros where the rows are padding.

    Row strides are in octets, 8 elements: so the compiler knows that rows are aligned to 16 bytes, without which it
    would not copy them asynchronously. `scale` includes log2(e). A head is `main_channels` plus, if not 0,
    `tail_channels` channels, some of them masked. `lanes` is a power of two above `slots`.
    """
    if overlaps:
        gdc_launch_dependents()
    query_stride, key_stride = query_octets * 8, key_octets * 8
    value_stride, out_stride = value_octets * 8, out_octets * 8
    if overlaps:
        gdc_wait()
    segment, begin, end, first = own_rows(tl.program_id(0), bounds, rows, slots, lanes, block_rows)
    if first >= end:
        return

    # Rows of a large batch times their stride pass 2**31; rows of one sequence do not.
    channel = tl.program_id(1) * head_size
    out += first.to(tl.int64) * out_stride + channel
    main = tl.zeros([block_rows, main_channels], tl.float32)
    tail = tl.zeros([block_rows, tail_channels if tail_channels > 0 else 16], tl.float32)
    if segment == slots:
        _store_block(out, out_stride, end - first, main, 0, main_channels, block_rows, head_size)
        if tail_channels > 0:
            _store_block(out, out_stride, end - first, tail, main_channels, tail_channels, block_rows, head_size)
        return

    query += first.to(tl.int64) * query_stride + channel
    key += begin.to(tl.int64) * key_stride + channel
    value += begin.to(tl.int64) * value_stride + channel
    query_main = _load_block(query, query_stride, end - first, 0, main_channels, block_rows, head_size)
    query_tail = query_main
    if tail_channels > 0:
        query_tail = _load_block(query, query_stride, end - first, main_channels, tail_channels, block_rows, head_size)
    peak = tl.full([block_rows], float("-inf"), tl.float32)
    weight = tl.zeros([block_rows], tl.float32)
    length = end - begin
    for start in range(0, length, block_columns):
        count = length - start
        keys = key + start * key_stride
        key_main = _load_block(keys, key_stride, count, 0, main_channels, block_columns, head_size)
        scores = tl.dot(query_main, tl.trans(key_main), input_precision="ieee")
        if tail_channels > 0:
            key_tail = _load_block(keys, key_stride, count, main_channels, tail_channels, block_columns, head_size)
            scores = tl.dot(query_tail, tl.trans(key_tail), acc=scores, input_precision="ieee")
        if count < block_columns:
            scores = tl.where(tl.arange(0, block_columns)[None, :] < count, scores, float("-inf"))

        higher = tl.maximum(peak, tl.max(scores, 1) * scale)
        shrink = tl.exp2(peak - higher)
        exponentials = tl.exp2(scores * scale - higher[:, None])
        weight = weight * shrink + tl.sum(exponentials, 1)
        peak = higher

        values = value + start * value_stride
        value_main = _load_block(values, value_stride, count, 0, main_channels, block_columns, head_size)
        exponentials = exponentials.to(value_main.dtype)
        main = tl.dot(exponentials, value_main, acc=main * shrink[:, None], input_precision="ieee")
        if tail_channels > 0:
            value_tail = _load_block(
                values, value_stride, count, main_channels, tail_channels, block_columns, head_size
            )
            tail = tl.dot(exponentials, value_tail, acc=tail * shrink[:, None], input_precision="ieee")

    main = main / weight[:, None]
    _store_block(out, out_stride, end - first, main, 0, main_channels, block_rows, head_size)
    if tail_channels > 0:
        tail = tail / weight[:, None]
        _store_block(out, out_stride, end - first, tail, main_channels, tail_channels, block_rows, head_size)

"""The Triton program behind `foveate.kernels.prefill_attention`.

One program computes some new tokens of one sequence, for all query heads of one key-value head: their queries are the
rows of one matrix product, so that keys and values are read once. Which tokens a program owns, how long their context
is and where it lies it reads on the device, so a captured launch serves every batch.

The method is the one-pass softmax of FlashAttention (Dao 2023, https://arxiv.org/abs/2307.08691), in powers of two. As
in `attention_kernel`, and for the reason given there, the keys and values of every product come from the
software-pipelined loop.
"""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from foveate.kernels.packed_rows_kernel import own_rows

__all__ = ["prefill_attention_kernel"]


@triton.jit(do_not_specialize=["tokens", "sequences", "table_stride"])
def prefill_attention_kernel(
    query,
    keys,
    values,
    page_tables,
    bounds,
    cached,
    out,
    tokens,
    sequences,
    table_stride,
    scale,
    key_heads: tl.constexpr,
    group: tl.constexpr,
    head_size: tl.constexpr,
    page_tokens: tl.constexpr,
    lanes: tl.constexpr,
    block_queries: tl.constexpr,
    block_group: tl.constexpr,
    block_tokens: tl.constexpr,
    channels: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Attention of `block_queries` new tokens of one sequence, or zeros where they are padding.

    A token has `block_group` rows, the `group` query heads of one key-value head and some masked ones. Programs run
    from the last tokens to the first, the longest loops of a sequence in front, so that none of them begins when the
    rest of the GPU is done. `scale` includes log2(e).
    """
    if overlaps:
        gdc_launch_dependents()
    key_head = tl.program_id(0)
    program = tl.num_programs(1) - 1 - tl.program_id(1)
    if overlaps:
        gdc_wait()
    sequence, begin, end, first = own_rows(program, bounds, tokens, sequences, lanes, block_queries)
    if first >= end:
        return

    # The new tokens of a large batch times their stride pass 2**31; those of one program do not.
    token_stride: tl.constexpr = key_heads * group * head_size
    row, channel = tl.arange(0, block_queries * block_group), tl.arange(0, channels)
    own_query, member = row // block_group, row % block_group
    is_row = (own_query < end - first) & (member < group)
    is_channel = channel < head_size
    is_own = is_row[:, None] & is_channel[None, :]
    own = own_query * token_stride + (key_head * group + member) * head_size
    own = first.to(tl.int64) * token_stride + own[:, None] + channel[None, :]
    total = tl.zeros([block_queries * block_group, channels], tl.float32)
    if sequence == sequences:
        tl.store(out + own, total.to(out.dtype.element_ty), mask=is_own)
        return

    queries = tl.load(query + own, mask=is_own, other=0.0)
    peak = tl.full([block_queries * block_group], float("-inf"), tl.float32)
    weight = tl.zeros([block_queries * block_group], tl.float32)
    before = tl.load(cached + sequence) + first - begin
    last_visible = before + own_query
    end_of_context = before + tl.minimum(end - first, block_queries)
    page_table = page_tables + sequence * table_stride
    page = tl.load(page_table)
    for start in range(0, end_of_context, block_tokens):
        token = start + tl.arange(0, block_tokens)
        is_token = token < end_of_context
        if page_tokens % block_tokens == 0:
            # One page holds the block. Its number was read a step ahead, so that its keys need not wait for it.
            cache_row = page.to(tl.int64) * page_tokens + token % page_tokens
            following = start + block_tokens
            page = tl.load(page_table + following // page_tokens, mask=following < end_of_context, other=0)
        else:
            pages = tl.load(page_table + token // page_tokens, mask=is_token, other=0)
            cache_row = pages.to(tl.int64) * page_tokens + token % page_tokens
        offset = (cache_row * key_heads + key_head)[:, None] * head_size + channel[None, :]
        mask = is_token[:, None] & is_channel[None, :]
        key = tl.load(keys + offset, mask=mask, other=0.0)
        scores = tl.dot(queries, tl.trans(key), input_precision="ieee")
        if start + block_tokens > before + 1:  # Not every token of the block is visible to the first query.
            scores = tl.where(token[None, :] <= last_visible[:, None], scores, float("-inf"))

        # Every query sees the first token of its context, so the peak is finite from the first block on.
        higher = tl.maximum(peak, tl.max(scores, 1) * scale)
        shrink = tl.exp2(peak - higher)
        exponentials = tl.exp2(scores * scale - higher[:, None])
        weight = weight * shrink + tl.sum(exponentials, 1)
        peak = higher
        value = tl.load(values + offset, mask=mask, other=0.0)
        total = tl.dot(exponentials.to(value.dtype), value, acc=total * shrink[:, None], input_precision="ieee")

    total = total / weight[:, None]
    tl.store(out + own, total.to(out.dtype.element_ty), mask=is_own)

"""The Triton program behind `foveate.kernels.rotary_cache`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["rotate_and_cache_kernel"]


@triton.jit
def _normed(low, high, weight, channel, mask, eps, half: tl.constexpr):
    """The root-mean-square norm of heads in two halves `[heads, half]`, rounded before and after the weight."""
    dtype = low.dtype
    low_weight = tl.load(weight + channel, mask=mask, other=0.0).to(tl.float32)
    high_weight = tl.load(weight + half + channel, mask=mask, other=0.0).to(tl.float32)
    low, high = low.to(tl.float32), high.to(tl.float32)
    mean = (tl.sum(low * low, 1) + tl.sum(high * high, 1)) / (2 * half)
    scale = tl.rsqrt(mean + eps)[:, None]
    low = ((low * scale).to(dtype).to(tl.float32) * low_weight).to(dtype)
    high = ((high * scale).to(dtype).to(tl.float32) * high_weight).to(dtype)
    return low, high


@triton.jit
def _rotated(low, high, cosine, sine):
    """Heads in two halves, turned by their angles. Each product is rounded before the sum, as the twin does."""
    dtype = low.dtype
    low, high, cosine, sine = low.to(tl.float32), high.to(tl.float32), cosine.to(tl.float32), sine.to(tl.float32)
    turned_low = (low * cosine).to(dtype).to(tl.float32) + (-high * sine).to(dtype).to(tl.float32)
    turned_high = (high * cosine).to(dtype).to(tl.float32) + (low * sine).to(dtype).to(tl.float32)
    return turned_low.to(dtype), turned_high.to(dtype)


@triton.jit
def _angles(table, position, last_position, channel, mask, half: tl.constexpr):
    """The cosines and sines `[heads, half]` of a position, or of the nearest that the table has."""
    row = tl.minimum(tl.maximum(position, 0), last_position).to(tl.int64)
    angles = table + row * 2 * half + channel
    return tl.load(angles, mask=mask, other=0.0), tl.load(angles + half, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["last_position"])
def rotate_and_cache_kernel(
    qkv,
    query_weight,
    key_weight,
    table,
    positions,
    write_rows,
    query,
    keys,
    values,
    eps,
    last_position,
    heads: tl.constexpr,
    key_heads: tl.constexpr,
    half: tl.constexpr,
    block_heads: tl.constexpr,
    block_half: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block_heads` heads of one token: queries are normed, turned and stored; keys too, into the cache; values are
    copied there. `block_heads` divides both counts of heads, so a program has heads of one kind."""
    if overlaps:
        gdc_launch_dependents()
    head_size: tl.constexpr = 2 * half
    token = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * block_heads
    # What is the same for all heads is read for each of them: one vector would reach other threads than heads do.
    channel = tl.broadcast_to(tl.arange(0, block_half)[None, :], (block_heads, block_half))
    within = tl.arange(0, block_heads)[:, None] * head_size + channel
    mask = channel < half
    source = qkv + (token * (heads + 2 * key_heads) + first) * head_size + within
    if overlaps:
        gdc_wait()
    low = tl.load(source, mask=mask, other=0.0)
    high = tl.load(source + half, mask=mask, other=0.0)
    row = tl.load(write_rows + token).to(tl.int64)
    position = tl.load(positions + token)
    if first < heads:
        cosine, sine = _angles(table, position, last_position, channel, mask, half)
        low, high = _normed(low, high, query_weight, channel, mask, eps, half)
        low, high = _rotated(low, high, cosine, sine)
        target = query + (token * heads + first) * head_size + within
        tl.store(target, low, mask=mask)
        tl.store(target + half, high, mask=mask)
    elif first < heads + key_heads:
        cosine, sine = _angles(table, position, last_position, channel, mask, half)
        low, high = _normed(low, high, key_weight, channel, mask, eps, half)
        low, high = _rotated(low, high, cosine, sine)
        target = keys + (row * key_heads + first - heads) * head_size + within
        tl.store(target, low, mask=mask)
        tl.store(target + half, high, mask=mask)
    else:
        target = values + (row * key_heads + first - heads - key_heads) * head_size + within
        tl.store(target, low, mask=mask)
        tl.store(target + half, high, mask=mask)

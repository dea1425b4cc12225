"""From a fused projection to rotated queries, and keys and values in the cache: norm, rotation and write in one."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.norm import rms_norm
from foveate.kernels.rotary import kept_rotary_table, rotary_angles, rotate

__all__ = ["CacheRows", "HeadNorms", "rotate_and_cache", "rotate_and_cache_reference", "rotate_and_cache_triton"]

MOST_HEADS = 8
"""Heads of one program: enough to fill its lanes, few enough that one token's heads are several programs."""


@dataclass(frozen=True)
class HeadNorms:
    """The norms of query and key heads, and the rotation behind them."""

    query: Tensor
    """`[head_size]`: the weight of the query heads' norm."""
    key: Tensor
    """`[head_size]`: the weight of the key heads' norm."""
    eps: float
    """Added to the mean square."""
    theta: float
    """The base of the rotation's frequencies."""
    most_positions: int
    """Positions that a sequence may have, all of whose angles are kept on the device."""


@dataclass(frozen=True)
class CacheRows:
    """The cache of one layer, and which rows of it take the new tokens."""

    keys: Tensor
    """`[cache rows, key-value heads, head_size]`, contiguous."""
    values: Tensor
    """Like `keys`."""
    write_rows: Tensor
    """`[tokens]` int64: the row of each token. Rows that are named twice get one of their tokens."""


def rotate_and_cache(qkv: Tensor, positions: Tensor, norms: HeadNorms, cache: CacheRows) -> Tensor:
    """`rotate_and_cache_triton` on a GPU with Triton, `rotate_and_cache_reference` elsewhere."""
    if runs_triton(qkv, norms.query):
        return rotate_and_cache_triton(qkv, positions, norms, cache)
    return rotate_and_cache_reference(qkv, positions, norms, cache)


def rotate_and_cache_reference(qkv: Tensor, positions: Tensor, norms: HeadNorms, cache: CacheRows) -> Tensor:
    """Norm and rotate queries and keys, write keys and values into the cache, and return the queries.

    qkv: `[tokens, (heads + 2 * key-value heads) * head_size]`, contiguous: queries, keys, values. positions: `[tokens]`
    int64, each token's place in its own sequence, from 0 and below `norms.most_positions`. Returns
    `[tokens, heads, head_size]`.
    """
    _, key_heads, head_size = cache.keys.shape
    heads = qkv.shape[1] // head_size - 2 * key_heads
    query, key, value = qkv.unflatten(-1, (-1, head_size)).split((heads, key_heads, key_heads), 1)
    angles = rotary_angles(positions, head_size, norms.theta, qkv.dtype)
    query = rotate(rms_norm(query, norms.query, norms.eps), *angles)
    key = rotate(rms_norm(key, norms.key, norms.eps), *angles)
    cache.keys.index_copy_(0, cache.write_rows, key)
    cache.values.index_copy_(0, cache.write_rows, value)
    return query


def rotate_and_cache_triton(qkv: Tensor, positions: Tensor, norms: HeadNorms, cache: CacheRows) -> Tensor:
    """What `rotate_and_cache_reference` computes, in one launch, with the same angles and roundings.

    Run it once before a capture: the table of the rotation's angles is made on the first call. A position outside the
    table gets the angles of the nearest one in it. Raises ValueError for a projection or a cache of another shape or
    layout, DeviceError where a capture is the first call.
    """
    from foveate.kernels.rotary_cache_kernel import rotate_and_cache_kernel

    heads = _check(qkv, positions, cache)
    tokens, (_, key_heads, head_size) = qkv.shape[0], cache.keys.shape
    query = qkv.new_empty(tokens, heads, head_size)
    block_heads = math.gcd(heads, key_heads, MOST_HEADS)
    half = head_size // 2
    if tokens:
        table = kept_rotary_table(head_size, norms.theta, norms.most_positions, qkv.dtype, qkv.device)
        with torch.cuda.device_of(qkv):
            rotate_and_cache_kernel[tokens, (heads + 2 * key_heads) // block_heads](
                qkv,
                norms.query,
                norms.key,
                table,
                positions,
                cache.write_rows,
                query,
                cache.keys,
                cache.values,
                norms.eps,
                norms.most_positions - 1,
                heads=heads,
                key_heads=key_heads,
                half=half,
                block_heads=block_heads,
                block_half=1 << (half - 1).bit_length(),
                num_warps=1,
                # A sum of two rounded products is not to become one product rounded and one not.
                enable_fp_fusion=False,
                **launch_options(qkv.device, tokens),
            )
    return query


def _check(qkv: Tensor, positions: Tensor, cache: CacheRows) -> int:
    """Return the number of query heads; ValueError for what the kernel does not take."""
    tokens, (_, key_heads, head_size) = qkv.shape[0], cache.keys.shape
    heads = qkv.shape[1] // head_size - 2 * key_heads
    if heads < 1 or qkv.shape[1] % head_size or head_size % 2 or not qkv.is_contiguous():
        raise ValueError(
            f"qkv must be [tokens, (heads + {2 * key_heads}) * {head_size}], contiguous, and the head size even: got "
            f"{list(qkv.shape)}, strides {qkv.stride()}."
        )
    if cache.values.shape != cache.keys.shape or not (cache.keys.is_contiguous() and cache.values.is_contiguous()):
        raise ValueError(
            f"keys and values must be of one shape and contiguous: got {list(cache.keys.shape)}, strides "
            f"{cache.keys.stride()}, and {list(cache.values.shape)}, strides {cache.values.stride()}."
        )
    for name, indices in (("positions", positions), ("write_rows", cache.write_rows)):
        if indices.shape != (tokens,) or not indices.is_contiguous() or indices.is_floating_point():
            raise ValueError(f"{name} must be [{tokens}] integers: got {indices.dtype} {list(indices.shape)}.")
    return heads

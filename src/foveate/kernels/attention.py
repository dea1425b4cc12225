"""Bidirectional attention over packed sequences, for the vision encoder.

`attention` is what a model calls: the Triton kernel on a GPU, its plain torch twin elsewhere. Both take the rows of all
sequences one behind the other, with the sequence bounds on the device, and write zeros in the rows behind the last one.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.errors import DeviceError
from foveate.kernels.attention_arguments import check_arguments, check_out
from foveate.kernels.attention_tiles import AttentionTiles, attention_tiles, split_head
from foveate.kernels.availability import is_twins_only, launch_options

try:
    import triton
except ImportError:  # There is no Triton for macOS, nor with the CPU builds of torch.
    triton = None
if triton is not None:
    from foveate.kernels.attention_kernel import packed_attention_kernel
    from foveate.kernels.packed_rows_kernel import bound_lanes

__all__ = ["attention", "packed_attention", "packed_attention_reference", "take_attention"]


Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]

_TAKEN: dict[tuple[torch.device, torch.dtype, int, int], Attention] = {}


def take_attention(way: Attention, device: torch.device, dtype: torch.dtype, heads: int, head_size: int) -> None:
    """Have `attention` take another way than `packed_attention` for heads like these, from now on."""
    _TAKEN[device, dtype, heads, head_size] = way


def attention(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """`packed_attention` on a GPU with Triton or what was taken instead, `packed_attention_reference` elsewhere.

    Shapes, padding and errors are those of `packed_attention`.
    """
    if query.is_cuda and not is_twins_only():
        way = _TAKEN.get((query.device, query.dtype, query.shape[1], query.shape[2]))
        if way is not None:
            return way(query, key, value, bounds, longest)
        if triton is not None:
            return packed_attention(query, key, value, bounds, longest)
    return packed_attention_reference(query, key, value, bounds)


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    *,
    out: Tensor | None = None,
    tiles: AttentionTiles | None = None,
) -> Tensor:
    """Attention of each row with the rows of its own sequence, scaled by `head_size**-0.5`, in one launch.

    query, key, value: `[rows, heads, head_size]` of bfloat16, float16 or float32; a head size that is a multiple of 8
    up to 128; the heads of a row side by side, the row stride any multiple of 8, so views of one fused projection do.
    bounds: int32 `[slots + 1]` on the same device; sequence `i` is rows `bounds[i]` to `bounds[i + 1]`. They begin
    with 0, never fall, and end with the number of real rows; an empty slot repeats a bound. longest: an upper bound of
    one sequence's rows, not the whole budget. tiles: block sizes, chosen from the shapes by default.

    Returns `[rows, heads * head_size]`, `out` if given. Rows behind the last bound are padding: nothing is read there
    and zeros are written. The launch reads nothing back to the host and depends on the bounds' values on the device
    alone, so it can be captured once and replayed with other bounds. A sequence gets the same bits in any company, as
    long as the tiles are the same.

    float32 is multiplied in full precision, bfloat16 and float16 on tensor cores with float32 sums.

    Raises ValueError for shapes, strides or types other than these, ConfigurationError for another head size,
    DeviceError without Triton.
    """
    if triton is None:
        raise DeviceError("packed_attention needs Triton, which is not installed here: call attention instead.")
    check_arguments(query, key, value, bounds, longest)
    rows, heads, head_size = query.shape
    split = split_head(head_size)
    tiles = tiles or attention_tiles(rows, heads, head_size, query.dtype)
    if out is None:
        out = query.new_empty(rows, heads * head_size)
    check_out(out, query)
    if out.numel() == 0:
        return out
    slots = bounds.numel() - 1
    with torch.cuda.device_of(query):
        packed_attention_kernel[rows // tiles.block_rows + slots + 1, heads](
            query,
            key,
            value,
            out,
            bounds,
            rows,
            slots,
            *(tensor.stride(0) // 8 for tensor in (query, key, value, out)),
            head_size**-0.5 * math.log2(math.e),
            head_size=head_size,
            main_channels=split.main,
            tail_channels=split.tail,
            lanes=bound_lanes(slots),
            block_rows=tiles.block_rows,
            block_columns=tiles.block_columns,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
            maxnreg=tiles.registers,
            **launch_options(query.device, rows),
        )
    return out


def packed_attention_reference(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
    """What `packed_attention` computes, in plain torch, one sequence after the other.

    Shapes as there. The bounds are read on the host: on a GPU this waits for the device and cannot be captured.
    """
    rows, heads, head_size = query.shape
    out = query.new_zeros(rows, heads, head_size)
    for begin, end in pairwise(bounds.tolist()):
        if begin < end:
            # [1, heads, rows of the sequence, head_size]
            queries, keys, values = (part[begin:end].transpose(0, 1).unsqueeze(0) for part in (query, key, value))
            out[begin:end] = F.scaled_dot_product_attention(queries, keys, values).squeeze(0).transpose(0, 1)
    return out.view(rows, heads * head_size)

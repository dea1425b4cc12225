"""Position vectors of packed patches: a square table, resized to each tile's grid as the rows are written.

The resizing is `F.interpolate(mode="bilinear", align_corners=False, antialias=True)` in closed form along each axis, in
float32: a triangle of half-width max(scale, 1) around each patch's centre. Where a tile has at least as many patches on
a side as the table has cells, that is two cells a side; `position_rows_triton` reads no others.
"""

import math

import torch
from torch import Tensor

from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.tile_layout import check_tile_shapes, place_rows

__all__ = ["patch_grid", "position_rows", "position_rows_reference", "position_rows_triton", "resized_rows"]

BLOCK_ROWS = 8
"""Patch rows of one program of `position_rows_triton`."""
BLOCK_CHANNELS = 128
"""Its channels: with 128 threads, each reads 16 bytes of a table cell in bfloat16."""


def position_rows(table: Tensor, tile_shapes: Tensor, bounds: Tensor, num_rows: int) -> Tensor:
    """`position_rows_triton` on a GPU with Triton, `position_rows_reference` elsewhere."""
    if runs_triton(table, tile_shapes, bounds):
        return position_rows_triton(table, tile_shapes, bounds, num_rows)
    return position_rows_reference(table, tile_shapes, bounds, num_rows)


def position_rows_reference(table: Tensor, tile_shapes: Tensor, bounds: Tensor, num_rows: int) -> Tensor:
    """Return the position row of each patch, `[num_rows, width]` in the type of the table; zeros in the padding.

    table: `[side * side, width]`. tile_shapes: `[slots, 2]` integers, (rows, columns) of each tile. bounds: int32
    `[slots + 1]`, the first patch row of each tile and the number of real rows. Sums are float32, rounded once.
    """
    rows = resized_rows(table, patch_grid(tile_shapes, bounds, num_rows))
    is_padding = torch.arange(num_rows, device=bounds.device) >= bounds[-1]
    return rows.masked_fill(is_padding[:, None], 0)


def position_rows_triton(table: Tensor, tile_shapes: Tensor, bounds: Tensor, num_rows: int) -> Tensor:
    """What `position_rows_reference` computes, in one launch that reads nothing back.

    Raises ValueError for a table that is not a contiguous square, or bounds and tile shapes of another kind.
    """
    from foveate.kernels.position_rows_kernel import position_rows_kernel

    check_tile_shapes(tile_shapes)
    side, (cells, width), slots = table_side(table), table.shape, tile_shapes.shape[0]
    if side**2 != cells or not table.is_contiguous():
        raise ValueError(
            f"table must be [side * side, width], contiguous: got {list(table.shape)}, strides {table.stride()}."
        )
    if bounds.shape != (slots + 1,) or bounds.dtype != torch.int32 or not bounds.is_contiguous():
        raise ValueError(f"bounds must be int32 [{slots + 1}]: got {bounds.dtype} {list(bounds.shape)}.")
    out = table.new_empty(num_rows, width)
    if num_rows:
        with torch.cuda.device_of(table):
            position_rows_kernel[-(-num_rows // BLOCK_ROWS), -(-width // BLOCK_CHANNELS)](
                table,
                tile_shapes,
                bounds,
                out,
                num_rows,
                slots,
                side=side,
                width=width,
                steps=slots.bit_length(),
                block_rows=BLOCK_ROWS,
                block=BLOCK_CHANNELS,
                num_warps=4,
                **launch_options(table.device, num_rows),
            )
    return out


def table_side(table: Tensor) -> int:
    """Return the cells of a side of a square table `[side * side, width]`."""
    return math.isqrt(table.shape[0])


def patch_grid(tile_shapes: Tensor, bounds: Tensor, num_rows: int) -> Tensor:
    """Return `[num_rows, 4]` float32: row and column of each patch in its tile, then the tile's rows and columns.

    Padding looks like the only patch of a 1x1 tile.
    """
    shapes = tile_shapes.to(torch.int64)
    slot, index, is_real = place_rows(bounds.to(torch.int64), num_rows)
    rows, columns = shapes[slot].unbind(-1)
    width = columns.clamp(min=1)
    grid = torch.stack([index // width, index % width, rows, columns], -1)
    only_patch = torch.arange(4, device=grid.device) // 2  # (0, 0, 1, 1), made on the device: a capture copies nothing
    return torch.where(is_real[:, None], grid, only_patch).to(torch.float32)


def resized_rows(table: Tensor, patch_grid: Tensor) -> Tensor:
    """Return the rows `[rows, width]` of `patch_grid` from a table `[side * side, width]`, with gradients if wanted."""
    side = table_side(table)
    index, size = patch_grid[:, :2], patch_grid[:, 2:]
    scale = side / size
    centre = (index + 0.5) * scale - 0.5
    source = torch.arange(side, device=patch_grid.device, dtype=torch.float32)
    distance = (source - centre[..., None]).abs() / scale.clamp(min=1)[..., None]
    weights = (1 - distance).clamp(min=0)
    weights = weights / weights.sum(-1, keepdim=True)  # [rows, 2, side]
    both = (weights[:, 0, :, None] * weights[:, 1, None, :]).flatten(1)  # [rows, side * side]
    return (both @ table.float()).to(table.dtype)

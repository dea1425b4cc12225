"""What follows from the (rows, columns) of the tiles in a packed batch, computed on the device without loops.

A batch is a fixed number of patch rows and of tile slots. Real tiles come first, packed without gaps; a slot that is
not used has the shape (0, 0); rows that belong to no tile are padding. All results have fixed shapes, so the same
functions serve an eager call and a captured graph in which only the tile shapes change.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedLayout:
    """Where the patches and tokens of a packed batch lie."""

    bounds: Tensor
    """`[slots + 1]` int32: tile t has the patch rows bounds[t] to bounds[t + 1]; unused slots repeat the last offset.
    """
    patch_grid: Tensor
    """`[rows, 4]` float32: row and column of each patch in its tile, then the tile's rows and columns; padding looks
    like the only patch of a 1x1 tile."""
    gather_index: Tensor
    """`[tokens * factor * factor]` int64: patch rows of each image token, block by block; padding reads row 0."""
    token_mask: Tensor
    """`[tokens, 1]` bool: which output rows belong to a tile."""


def packed_layout(tile_shapes: Tensor, num_rows: int, downsample_factor: int) -> PackedLayout:
    """Lay out a batch of `num_rows` patch rows; `tile_shapes` is `[slots, 2]` integers, (rows, columns) of each tile.

    The caller sees to it that the tiles' patches are at most `num_rows`; nothing here reads the device.
    """
    shapes = tile_shapes.to(torch.int64)
    bounds = _bounds(shapes.prod(-1))
    patch_grid = _patch_grid(shapes, bounds, num_rows)
    gather_index, token_mask = _gather_index(shapes, bounds, num_rows, downsample_factor)
    return PackedLayout(bounds.to(torch.int32), patch_grid, gather_index, token_mask)


def _bounds(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _place(bounds: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each of `count` rows: its slot (clamped to the last), its index in that slot, and whether it is in any."""
    row = torch.arange(count, device=bounds.device)
    slot = torch.searchsorted(bounds[1:].contiguous(), row, right=True).clamp_(max=bounds.shape[0] - 2)
    return slot, row - bounds[slot], row < bounds[-1]


def _patch_grid(shapes: Tensor, bounds: Tensor, num_rows: int) -> Tensor:
    slot, index, is_real = _place(bounds, num_rows)
    rows, columns = shapes[slot].unbind(-1)
    width = columns.clamp(min=1)
    grid = torch.stack([index // width, index % width, rows, columns], -1)
    only_patch = torch.arange(4, device=grid.device) // 2  # (0, 0, 1, 1), made on the device: a capture copies nothing
    return torch.where(is_real[:, None], grid, only_patch).to(torch.float32)


def _gather_index(shapes: Tensor, bounds: Tensor, num_rows: int, factor: int) -> tuple[Tensor, Tensor]:
    token_bounds = _bounds((shapes // factor).prod(-1))
    slot, index, is_real = _place(token_bounds, num_rows // factor**2)
    columns = shapes[slot, 1]
    blocks_per_row = (columns // factor).clamp(min=1)
    top, left = index // blocks_per_row * factor, index % blocks_per_row * factor
    offset = torch.arange(factor, device=shapes.device)
    rows = top[:, None, None] + offset[:, None]  # [tokens, factor, 1]
    patch = bounds[slot][:, None, None] + rows * columns[:, None, None] + left[:, None, None] + offset
    return patch.masked_fill(~is_real[:, None, None], 0).flatten(), is_real[:, None]

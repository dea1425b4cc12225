"""Where the patches and tokens of packed tiles lie, from the tiles' (rows, columns) alone, without reading the device.

Tiles are packed without gaps. A slot that no tile uses has the shape (0, 0); rows behind the last tile are padding. All
results have fixed shapes, so a captured launch serves every segmentation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from foveate.kernels.availability import launch_options, runs_triton

__all__ = ["TileLayout", "place_rows", "tile_layout", "tile_layout_reference", "tile_layout_triton"]

BLOCK_TOKENS = 64
"""Tokens of one program of `tile_layout_triton`."""
MOST_LANES = 64
"""Tile slots that a program looks at together."""


class TileLayout(NamedTuple):
    """Bounds, gather index and padding of a packed batch."""

    bounds: Tensor
    """`[slots + 1]` int32: tile t has the patch rows bounds[t] to bounds[t + 1]; unused slots repeat the last offset.
    """
    gather_index: Tensor
    """`[tokens * factor * factor]` int64: patch rows of each image token, block by block; padding reads row 0."""
    is_padding: Tensor
    """`[tokens, 1]` bool: which output rows belong to no tile."""


def tile_layout(tile_shapes: Tensor, num_rows: int, factor: int) -> TileLayout:
    """`tile_layout_triton` on a GPU with Triton, `tile_layout_reference` elsewhere."""
    if runs_triton(tile_shapes):
        return tile_layout_triton(tile_shapes, num_rows, factor)
    return tile_layout_reference(tile_shapes, num_rows, factor)


def tile_layout_reference(tile_shapes: Tensor, num_rows: int, factor: int) -> TileLayout:
    """Lay out `num_rows` patch rows, of which `factor` x `factor` make an image token.

    tile_shapes: `[slots, 2]` integers, (rows, columns) of each tile. The caller sees to it that the tiles' patches are
    at most `num_rows`.
    """
    shapes = tile_shapes.to(torch.int64)
    bounds, token_bounds = _bounds(shapes.prod(-1)), _bounds((shapes // factor).prod(-1))
    slot, index, is_real = place_rows(token_bounds, num_rows // factor**2)
    columns = shapes[slot, 1]
    blocks_per_row = (columns // factor).clamp(min=1)
    top, left = index // blocks_per_row * factor, index % blocks_per_row * factor
    offset = torch.arange(factor, device=shapes.device)
    rows = top[:, None, None] + offset[:, None]  # [tokens, factor, 1]
    patch = bounds[slot][:, None, None] + rows * columns[:, None, None] + left[:, None, None] + offset
    is_padding = ~is_real[:, None]
    return TileLayout(bounds.to(torch.int32), patch.masked_fill(is_padding[..., None], 0).flatten(), is_padding)


def tile_layout_triton(tile_shapes: Tensor, num_rows: int, factor: int) -> TileLayout:
    """What `tile_layout_reference` computes, in one launch.

    Raises ValueError for tile shapes that are not contiguous `[slots, 2]` integers.
    """
    from foveate.kernels.tile_layout_kernel import tile_layout_kernel

    check_tile_shapes(tile_shapes)
    slots, tokens = tile_shapes.shape[0], num_rows // factor**2
    bounds = tile_shapes.new_empty(slots + 1, dtype=torch.int32)
    gather_index = tile_shapes.new_empty(tokens * factor**2, dtype=torch.int64)
    is_padding = tile_shapes.new_empty((tokens, 1), dtype=torch.bool)
    with torch.cuda.device_of(tile_shapes):
        tile_layout_kernel[max(1, -(-tokens // BLOCK_TOKENS)),](
            tile_shapes,
            bounds,
            gather_index,
            is_padding.view(torch.uint8),
            slots,
            tokens,
            factor=factor,
            cells=1 << (factor**2 - 1).bit_length(),
            lanes=max(16, min(MOST_LANES, 1 << (slots - 1).bit_length())),
            block_tokens=BLOCK_TOKENS,
            num_warps=4,
            **launch_options(tile_shapes.device, num_rows),
        )
    return TileLayout(bounds, gather_index, is_padding)


def check_tile_shapes(tile_shapes: Tensor) -> None:
    """Raises ValueError unless tile shapes are contiguous `[slots, 2]` integers of 32 or 64 bits."""
    is_integer = tile_shapes.dtype in (torch.int32, torch.int64)
    if tile_shapes.dim() == 2 and tile_shapes.shape[1] == 2 and is_integer and tile_shapes.is_contiguous():
        return
    raise ValueError(
        f"tile_shapes must be int32 or int64 [slots, 2], contiguous: got {tile_shapes.dtype} "
        f"{list(tile_shapes.shape)}, strides {tile_shapes.stride()}."
    )


def place_rows(bounds: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each of `count` rows, its slot (clamped to the last), its index in that slot, and whether it is in
    any; bounds: `[slots + 1]` integers that begin with 0 and never fall."""
    row = torch.arange(count, device=bounds.device)
    slot = torch.searchsorted(bounds[1:].contiguous(), row, right=True).clamp_(max=bounds.shape[0] - 2)
    return slot, row - bounds[slot], row < bounds[-1]


def _bounds(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

"""What follows from the (rows, columns) of the tiles in a packed batch, computed on the device without loops.

A batch is a fixed number of patch rows and of tile slots. Real tiles come first, packed without gaps; a slot that is
not used has the shape (0, 0); rows that belong to no tile are padding. All results have fixed shapes, so the same
functions serve an eager call and a captured graph in which only the tile shapes change.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from foveate.kernels.position_rows import patch_grid
from foveate.kernels.tile_layout import tile_layout


@dataclass(frozen=True)
class PackedLayout:
    """Where the patches and tokens of a packed batch lie."""

    tile_shapes: Tensor
    """`[slots, 2]` integers: (rows, columns) of each tile."""
    num_rows: int
    """Patch rows, padding included."""
    bounds: Tensor
    """`[slots + 1]` int32: tile t has the patch rows bounds[t] to bounds[t + 1]; unused slots repeat the last offset.
    """
    gather_index: Tensor
    """`[tokens * factor * factor]` int64: patch rows of each image token, block by block; padding reads row 0."""
    is_padding: Tensor
    """`[tokens, 1]` bool: which output rows belong to no tile."""

    @cached_property
    def patch_grid(self) -> Tensor:
        """`[rows, 4]` float32: row and column of each patch in its tile, then the tile's rows and columns; padding
        looks like the only patch of a 1x1 tile. Made when first asked for: a tower that is served does without."""
        return patch_grid(self.tile_shapes, self.bounds, self.num_rows)


def packed_layout(tile_shapes: Tensor, num_rows: int, downsample_factor: int) -> PackedLayout:
    """Lay out a batch of `num_rows` patch rows; `tile_shapes` is `[slots, 2]` integers, (rows, columns) of each tile.

    The caller sees to it that the tiles' patches are at most `num_rows`; nothing here reads the device.
    """
    return PackedLayout(tile_shapes, num_rows, *tile_layout(tile_shapes, num_rows, downsample_factor))

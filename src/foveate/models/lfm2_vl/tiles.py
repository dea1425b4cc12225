"""Which tiles a picture is cut into, from its width and height alone: no pixel is touched here.

The rules are those of transformers' `image_processing_lfm2_vl.py`, expression by expression, so that rounding and the
order of ties agree. Where the reference goes wrong, this refuses (a tile beyond the image-token bound) or counts the
tile that is really made (a grid of one tile).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from foveate.errors import ImageSizeError
from foveate.models.lfm2_vl.image_settings import ImageSettings


@dataclass(frozen=True)
class TileShape:
    """Patches of one tile; both sides are multiples of the downsample factor."""

    rows: int
    """Patch rows, from top to bottom."""
    columns: int
    """Patch columns, from left to right."""

    @property
    def num_patches(self) -> int:
        """Rows of the encoder's input."""
        return self.rows * self.columns

    def num_tokens(self, downsample_factor: int) -> int:
        """Rows of the encoder's output."""
        return (self.rows // downsample_factor) * (self.columns // downsample_factor)


@dataclass(frozen=True)
class TileGrid:
    """How one picture is cut: `rows` x `columns` tiles in row-major order, then perhaps a thumbnail."""

    rows: int
    """Tile rows."""
    columns: int
    """Tile columns."""
    tile: TileShape
    """The shape of each tile of the grid."""
    thumbnail: TileShape | None
    """The shape of the whole picture in small, which follows the grid; None when there is none."""

    @property
    def tiles(self) -> tuple[TileShape, ...]:
        """All tiles in the order in which the encoder gets them."""
        grid = (self.tile,) * (self.rows * self.columns)
        return (*grid, self.thumbnail) if self.thumbnail else grid

    @property
    def is_split(self) -> bool:
        """Whether the picture has more than one grid tile, and so tile markers in the prompt."""
        return self.rows * self.columns > 1


def plan_tiles(width: int, height: int, settings: ImageSettings) -> TileGrid:
    """Return the tiles of a picture of `width` x `height` pixels.

    Raises ImageSizeError for a picture so thin that one tile would exceed `max_image_tokens`: the reference then makes
    more patches than its own buffers hold.
    """
    whole = _smart_resize(width, height, settings)
    most = settings.tile_bounds[1]
    if _is_too_large(width, height, settings) and most > 1:
        columns, rows = _closest_grid(width, height, settings)
        side = settings.tile_size // settings.patch_size
        thumbnail = whole if settings.use_thumbnail and rows * columns > 1 else None
        grid = TileGrid(rows, columns, TileShape(side, side), thumbnail)
    else:
        grid = TileGrid(1, 1, whole, None)
    _check_bound(width, height, grid, settings)
    return grid


def _check_bound(width: int, height: int, grid: TileGrid, settings: ImageSettings) -> None:
    single = grid.thumbnail if grid.is_split else grid.tile
    tokens = single.num_tokens(settings.downsample_factor) if single else 0
    bound = settings.longest_tile_patches // settings.downsample_factor**2
    if tokens > bound:
        raise ImageSizeError(
            f"a picture of {width}x{height} pixels is too thin: it would take {tokens} image tokens in one tile, and"
            f" the model's bound is {bound} (max_image_tokens); crop it or scale its short side up"
        )


def _round_to(value: int, multiple: int) -> int:
    return round(value / multiple) * multiple


def _is_too_large(width: int, height: int, settings: ImageSettings) -> bool:
    block = settings.block_pixels
    rounded_height = max(settings.patch_size, _round_to(height, block))
    rounded_width = max(settings.patch_size, _round_to(width, block))
    bound = settings.max_image_tokens * block**2 * settings.max_pixels_tolerance
    return rounded_height * rounded_width > bound


def _smart_resize(width: int, height: int, settings: ImageSettings) -> TileShape:
    block = settings.block_pixels
    fewest_pixels = settings.min_image_tokens * block**2
    most_pixels = settings.max_image_tokens * block**2
    new_height = max(block, _round_to(height, block))
    new_width = max(block, _round_to(width, block))
    if new_height * new_width > most_pixels:
        beta = math.sqrt((height * width) / most_pixels)
        new_height = max(block, math.floor(height / beta / block) * block)
        new_width = max(block, math.floor(width / beta / block) * block)
    elif new_height * new_width < fewest_pixels:
        beta = math.sqrt(fewest_pixels / (height * width))
        new_height = math.ceil(height * beta / block) * block
        new_width = math.ceil(width * beta / block) * block
    return TileShape(new_height // settings.patch_size, new_width // settings.patch_size)


@lru_cache(maxsize=64)
def _candidate_grids(fewest: int, most: int) -> tuple[tuple[int, int], ...]:
    # The set's iteration order decides ties of equal area, so it is built exactly as the reference builds it.
    candidates = [
        (columns, rows)
        for tiles in range(fewest, most + 1)
        for columns in range(1, tiles + 1)
        for rows in range(1, tiles + 1)
        if fewest <= columns * rows <= most
    ]
    return tuple(sorted(set(candidates), key=lambda grid: grid[0] * grid[1]))


def _closest_grid(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    best, smallest_difference = (1, 1), float("inf")
    for grid in _candidate_grids(*settings.tile_bounds):
        difference = abs(width / height - grid[0] / grid[1])
        if difference < smallest_difference:
            best, smallest_difference = grid, difference
        elif difference == smallest_difference:
            grid_pixels = settings.tile_size * settings.tile_size * grid[0] * grid[1]
            if width * height > 0.5 * grid_pixels:
                best = grid
    return best

"""Batches of tiles to encode."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foveate.errors import ConfigurationError
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape

MOST_TILES = 256

FULL = (32, 32)
TILE_ROWS: dict[str, list[tuple[int, int]]] = {
    "1 tile, 64 tokens": [(16, 16)],
    "1 tile, 256 tokens": [FULL],
    "3 tiles, 704 tokens": [FULL, FULL, (24, 32)],
    "4 tiles, 832 tokens": [*[FULL] * 3, (16, 16)],
    "5 tiles, 1280 tokens": [FULL] * 5,
    "7 tiles, 1696 tokens": [*[FULL] * 6, (20, 32)],
    "9 tiles, 2192 tokens": [*[FULL] * 8, (18, 32)],
    "11 tiles, 2688 tokens": [*[FULL] * 10, (16, 32)],
}
"""Patch rows and columns of the tiles in each row of the encoder tables: pictures as LFM2-VL cuts them, full tiles of
512x512 pixels and a thumbnail."""


@dataclass(frozen=True)
class TileRow:
    """One batch by the shapes of its tiles."""

    name: str
    """What tables call it."""
    tiles: tuple[TileShape, ...]
    """All tiles."""
    tiles_per_image: tuple[int, ...]
    """How many of them, in order, belong to each picture."""

    @property
    def num_patches(self) -> int:
        """Rows of the encoder's input."""
        return sum(tile.num_patches for tile in self.tiles)

    def tokens(self, config: ModelConfig) -> int:
        """Return the rows of the encoder's output."""
        return sum(tile.num_tokens(config.projector.downsample_factor) for tile in self.tiles)

    def batch(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> ImageBatch:
        """Return random patches for these tiles, the same at every call with this row and kind of device."""
        generator = torch.Generator(device).manual_seed(len(self.tiles))
        shape = (self.num_patches, config.vision.patch_width)
        patches = torch.rand(shape, device=device, generator=generator).mul_(2).sub_(1).to(dtype)
        return ImageBatch(patches, self.tiles, self.tiles_per_image)


def published_rows() -> list[TileRow]:
    """Return the rows of the tables in the documents, a picture each."""
    return [
        TileRow(name, tuple(TileShape(*tile) for tile in tiles), (len(tiles),)) for name, tiles in TILE_ROWS.items()
    ]


def full_rows(counts: Sequence[int], config: ModelConfig) -> list[TileRow]:
    """Return batches of so many full tiles of a model, in pictures of as many as its pictures have at most.

    Raises ConfigurationError on a count out of bounds.
    """
    side, most = config.images.tile_size // config.images.patch_size, config.images.tile_bounds[1]
    rows = []
    for count in counts:
        if not 1 <= count <= MOST_TILES:
            raise ConfigurationError(f"tiles holds {count}; give 1 to {MOST_TILES} tiles a batch")
        pictures = (*(most,) * (count // most), *([count % most] if count % most else []))
        row = TileRow("", (TileShape(side, side),) * count, pictures)
        rows.append(TileRow(f"{count} tile{'s' * (count > 1)}, {row.tokens(config)} tokens", row.tiles, pictures))
    return rows

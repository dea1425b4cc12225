"""A picture as the encoder takes it, and what cutting it on the host and on a device have in common.

Tiles are packed one after another without padding: `[num_patches of all tiles, patch_width]`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.tiles import TileGrid, TileShape


@dataclass(frozen=True)
class ImagePatches:
    """One picture, ready for the encoder."""

    patches: Tensor
    """`[num_patches of all tiles, patch_width]`, tiles one after another; on the host in float32, or on a device."""
    grid: TileGrid
    """How the picture was cut."""

    @property
    def tiles(self) -> tuple[TileShape, ...]:
        """The shapes of the tiles, in the order of their rows in `patches`."""
        return self.grid.tiles


def side_pixels(tile: TileShape, settings: ImageSettings) -> tuple[int, int]:
    """Return the height and width of a tile in pixels."""
    return tile.rows * settings.patch_size, tile.columns * settings.patch_size


def level_statistics(settings: ImageSettings) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each channel in levels from 0 to 255, `[3]` float32."""
    mean = torch.tensor(settings.image_mean) * (1.0 / settings.rescale_factor)
    std = torch.tensor(settings.image_std) * (1.0 / settings.rescale_factor)
    return mean, std

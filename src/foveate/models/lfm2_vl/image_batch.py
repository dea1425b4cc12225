"""Pictures of any number of prompts, packed for one call of the encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, islice

import torch
from torch import Tensor

from foveate.models.lfm2_vl.image_patches import ImagePatches
from foveate.models.lfm2_vl.tiles import TileShape


@dataclass(frozen=True)
class ImageBatch:
    """Packed patches and the shapes that say whose they are."""

    patches: Tensor
    """`[num_patches of all tiles, patch_width]`, tiles one after another, on the host or a device."""
    tiles: tuple[TileShape, ...]
    """The shape of each tile."""
    tiles_per_image: tuple[int, ...]
    """How many of the tiles, in order, belong to each image."""

    @classmethod
    def of(cls, images: Sequence[ImagePatches]) -> "ImageBatch":
        """Pack pictures; there must be at least one."""
        patches = images[0].patches if len(images) == 1 else torch.cat([image.patches for image in images])
        tiles = tuple(tile for image in images for tile in image.tiles)
        return cls(patches, tiles, tuple(len(image.tiles) for image in images))

    @cached_property
    def first_rows(self) -> tuple[int, ...]:
        """The first patch row of each tile, and the number of rows at the end."""
        return tuple(accumulate((tile.num_patches for tile in self.tiles), initial=0))

    @cached_property
    def image_of_tile(self) -> tuple[int, ...]:
        """The image of each tile."""
        return tuple(image for image, count in enumerate(self.tiles_per_image) for _ in range(count))

    def tokens_per_image(self, downsample_factor: int) -> list[int]:
        """Return the image tokens of each picture."""
        tokens = iter([tile.num_tokens(downsample_factor) for tile in self.tiles])
        return [sum(islice(tokens, count)) for count in self.tiles_per_image]

    def tile_shapes(self) -> Tensor:
        """Return `[tiles, 2]` int32 on the host: (rows, columns) of each tile. Batches of the same tiles share the
        tensor: it is to be read alone."""
        return _shapes_of(self.tiles)

    def select(self, tiles: Sequence[int]) -> "ImageBatch":
        """Return the part that holds these tiles, in ascending order; neighbours are views, without a copy."""
        runs: list[list[int]] = []
        for tile in tiles:
            if runs and runs[-1][1] == tile:
                runs[-1][1] += 1
            else:
                runs.append([tile, tile + 1])
        parts = [self.patches[self.first_rows[first] : self.first_rows[end]] for first, end in runs]
        owners = [self.image_of_tile[tile] for tile in tiles]
        counts = tuple(owners.count(owner) for owner in dict.fromkeys(owners))
        patches = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else self.patches[:0]
        return ImageBatch(patches, tuple(self.tiles[tile] for tile in tiles), counts)


@lru_cache(maxsize=1024)
def _shapes_of(tiles: tuple[TileShape, ...]) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.tensor([(tile.rows, tile.columns) for tile in tiles], dtype=torch.int32, device="cpu").view(-1, 2)

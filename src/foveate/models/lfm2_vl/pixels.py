"""RGB pixels → packed patch rows, bit for bit what transformers' image processor makes from the same RGB on a CPU."""

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transforms

from foveate.models.lfm2_vl.image_patches import ImagePatches, level_statistics, side_pixels
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.tiles import TileGrid, plan_tiles

_FILTERS = {0: InterpolationMode.NEAREST_EXACT, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}


def image_patches(image: Image.Image, settings: ImageSettings) -> ImagePatches:
    """Cut an RGB picture into tiles and patches.

    Raises ImageSizeError for a picture that is too thin (see `plan_tiles`).
    """
    grid = plan_tiles(image.width, image.height, settings)
    pixels = transforms.pil_to_tensor(image)  # [3, height, width] uint8
    parts = [patchify(normalise(tile, settings), settings.patch_size) for tile in cut(pixels, grid, settings)]
    return ImagePatches(torch.cat(parts) if len(parts) > 1 else parts[0], grid)


def cut(pixels: Tensor, grid: TileGrid, settings: ImageSettings) -> list[Tensor]:
    """Return the tiles in row-major order, then the thumbnail if there is one; each `[3, height, width]` uint8."""
    height, width = side_pixels(grid.tile, settings)
    canvas = resize(pixels, height * grid.rows, width * grid.columns, settings)
    tiles = [
        canvas[:, top : top + height, left : left + width]
        for top in range(0, canvas.shape[1], height)
        for left in range(0, canvas.shape[2], width)
    ]
    if grid.thumbnail:
        tiles.append(resize(pixels, *side_pixels(grid.thumbnail, settings), settings))
    return tiles


def resize(pixels: Tensor, height: int, width: int, settings: ImageSettings) -> Tensor:
    """Return uint8 pixels `[3, height, width]` at another size.

    On uint8 with antialiasing, as the reference does: the result is rounded to uint8 before it is normalised.
    """
    return transforms.resize(pixels, [height, width], interpolation=_FILTERS[settings.resample], antialias=True)


def normalise(pixels: Tensor, settings: ImageSettings) -> Tensor:
    """Return uint8 pixels `[3, height, width]` as float32, rescaled and normalised in one step."""
    return transforms.normalize(pixels.to(torch.float32), *level_statistics(settings))


def patchify(pixels: Tensor, patch_size: int) -> Tensor:
    """Return `[3, height, width]` as patch rows `[num_patches, patch_size * patch_size * 3]`, the channel fastest."""
    channels, height, width = pixels.shape
    grid = pixels.reshape(channels, height // patch_size, patch_size, width // patch_size, patch_size)
    return grid.permute(1, 3, 2, 4, 0).reshape(-1, patch_size * patch_size * channels)

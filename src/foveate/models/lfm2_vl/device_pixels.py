"""RGB pixels → packed patch rows on a device: the arithmetic of transformers' image processor on a GPU.

It resizes in float32 and rounds to whole levels, as torchvision does wherever torch has no resize for uint8. On a CPU
it has one (`pixels.py` uses it, too), in fixed point: the two differ by at most a level, in few values by more with the
bicubic filter. From there on all is the same.

All tiles of a picture are one canvas until the end, so a picture is a dozen launches whatever its tiles, and nothing
here reads the device.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from foveate.models.lfm2_vl.image_patches import ImagePatches, level_statistics, side_pixels
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.tiles import TileShape, plan_tiles

_NEAREST, _BICUBIC = 0, 3
_MODES: Final = {_NEAREST: "nearest-exact", 2: "bilinear", _BICUBIC: "bicubic"}


class DevicePixels:
    """Cuts pictures into patches on one device."""

    def __init__(self, settings: ImageSettings, device: torch.device, dtype: torch.dtype) -> None:
        """Patches come in `dtype`, the type of the encoder's weights, in which it would round them anyway."""
        self._settings, self._device, self._dtype = settings, device, dtype
        # Made once: a constant that is made for a picture is copied to the device for it, and the host waits.
        self._mean, self._std = (each.to(device).view(3, 1, 1) for each in level_statistics(settings))

    def patches(self, pixels: Tensor) -> ImagePatches:
        """Cut an RGB picture, `[height, width, 3]` uint8.

        One that lies on the host while the device is another is resized there, and its levels cross the bus small.

        Raises ImageSizeError for a picture that is too thin (see `plan_tiles`).
        """
        height, width, channels = pixels.shape
        grid = plan_tiles(width, height, self._settings)
        num_patches = sum(tile.num_patches for tile in grid.tiles)
        row_width = self._settings.patch_size**2 * channels
        rows = torch.empty(num_patches, row_width, dtype=self._dtype, device=self._device)
        planar = self._planar(pixels)
        tile_height, tile_width = side_pixels(grid.tile, self._settings)
        canvas = self._resize(planar, tile_height * grid.rows, tile_width * grid.columns)
        split = grid.rows * grid.columns * grid.tile.num_patches
        self._write(canvas, grid.tile, rows[:split])
        if grid.thumbnail:
            small = self._resize(planar, *side_pixels(grid.thumbnail, self._settings))
            self._write(small, grid.thumbnail, rows[split:])
        return ImagePatches(rows, grid)

    def _planar(self, pixels: Tensor) -> Tensor:
        """Return `[3, height, width]`: float32 on the device, or uint8 on the host."""
        planar = pixels.permute(2, 0, 1)
        if pixels.device.type != self._device.type:
            return planar
        return planar.to(torch.float32, memory_format=torch.contiguous_format)

    def _resize(self, planar: Tensor, height: int, width: int) -> Tensor:
        """Return `[3, height, width]` float32 on the device: whole levels, in memory of its own."""
        levels = resize_levels(planar, height, width, self._settings.resample)
        return levels.to(self._device).to(torch.float32, memory_format=torch.contiguous_format)

    def _write(self, canvas: Tensor, tile: TileShape, rows: Tensor) -> None:
        """Normalise the levels of a canvas in place and write its patches, tile by tile, into `rows`."""
        canvas.sub_(self._mean).div_(self._std)
        size = self._settings.patch_size
        # [3, tile rows, patch rows, pixel rows, tile columns, patch columns, pixel columns]
        parts = canvas.view(3, -1, tile.rows, size, canvas.shape[2] // (tile.columns * size), tile.columns, size)
        parts = parts.permute(1, 4, 2, 5, 3, 6, 0)  # the channel fastest
        rows.view(parts.shape).copy_(parts)


def resize_levels(planar: Tensor, height: int, width: int, resample: int) -> Tensor:
    """Return the whole levels of `planar`, `[3, height, width]`, at another size, on its own device, in its own type.

    float32, or uint8 on a CPU. `resample` is PIL's number of the filter. The steps are torchvision's for uint8 pixels,
    which on a GPU are float32 in between.
    """
    if planar.shape[1:] == (height, width):
        return planar.clone()
    mode = _MODES[resample]
    if resample == _NEAREST:
        return functional.interpolate(planar[None], (height, width), mode=mode)[0]
    resized = functional.interpolate(planar[None], (height, width), mode=mode, align_corners=False, antialias=True)[0]
    if planar.dtype == torch.uint8:
        return resized
    if resample == _BICUBIC:
        resized.clamp_(0, 255)
    return resized.round_()

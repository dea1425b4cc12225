"""Pixels cut on a device are those of the reference on that device, and at most a level from the CPU's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transforms

from foveate.errors import ImageSizeError
from foveate.models.lfm2_vl.device_pixels import DevicePixels
from foveate.models.lfm2_vl.image_patches import side_pixels
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pixels import image_patches, normalise, patchify
from foveate.models.lfm2_vl.tiles import plan_tiles

CPU = torch.device("cpu")
FILTERS = {0: InterpolationMode.NEAREST_EXACT, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}
SIZES = [(300, 200), (512, 512), (1100, 800), (40, 30), (1024, 1024)]
PHOTOGRAPH = Path(__file__).parents[2] / "examples" / "pictures" / "rocket-on-launch-pad.jpg"


def photograph(size: tuple[int, int]) -> Image.Image:
    return Image.open(PHOTOGRAPH).convert("RGB").resize(size, Image.Resampling.LANCZOS)


def pixels_of(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image))


def resized_as_on_a_gpu(planar: Tensor, height: int, width: int, resample: int) -> Tensor:
    """Resize as torchvision does where it has no resize for uint8: in float32, then to whole levels."""
    resized = transforms.resize(planar.float(), [height, width], interpolation=FILTERS[resample], antialias=True)
    return resized.clamp(0, 255).round().to(torch.uint8)


def reference_rows(image: Image.Image, settings: ImageSettings) -> Tensor:
    planar, grid = transforms.pil_to_tensor(image), plan_tiles(image.width, image.height, settings)
    height, width = side_pixels(grid.tile, settings)
    canvas = resized_as_on_a_gpu(planar, height * grid.rows, width * grid.columns, settings.resample)
    tiles = [part for row in canvas.split(height, 1) for part in row.split(width, 2)]
    if grid.thumbnail:
        tiles.append(resized_as_on_a_gpu(planar, *side_pixels(grid.thumbnail, settings), settings.resample))
    return torch.cat([patchify(normalise(tile, settings), settings.patch_size) for tile in tiles])


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", FILTERS)
def test_they_are_the_references_numbers_on_a_gpu_bit_for_bit(resample, size):
    settings, image = ImageSettings(resample=resample), photograph(size)
    made = DevicePixels(settings, CPU, torch.float32).patches(pixels_of(image))
    assert torch.equal(made.patches, reference_rows(image, settings))
    assert made.grid == plan_tiles(*size, settings)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resample", FILTERS)
def test_they_are_the_cpus_numbers_to_a_level_in_a_fifth_of_the_values(resample, size):
    """Bicubic alone may be further off, in one value of a hundred: the CPU's resize cuts off overshoot twice."""
    settings, image = ImageSettings(resample=resample), photograph(size)
    made = DevicePixels(settings, CPU, torch.float32).patches(pixels_of(image))
    usual = image_patches(image, settings)
    levels = ((made.patches - usual.patches) * 127.5).round().abs()
    assert made.grid == usual.grid
    assert (levels > 0).float().mean() <= 0.2
    assert (levels > 1).float().mean() <= (0.01 if resample == 3 else 0)


def test_patches_come_in_the_encoders_type_rounded_once():
    settings, pixels = ImageSettings(), pixels_of(photograph((900, 700)))
    exact = DevicePixels(settings, CPU, torch.float32).patches(pixels).patches
    assert torch.equal(DevicePixels(settings, CPU, torch.bfloat16).patches(pixels).patches, exact.to(torch.bfloat16))


def test_pixels_that_lie_in_memory_in_another_order_give_the_same_patches():
    settings, pixels = ImageSettings(), pixels_of(photograph((300, 220)))
    turned = pixels.transpose(0, 1).contiguous().transpose(0, 1)
    cutter = DevicePixels(settings, CPU, torch.float32)
    assert torch.equal(cutter.patches(turned).patches, cutter.patches(pixels).patches)


def test_the_picture_is_left_as_it_was():
    pixels = pixels_of(photograph((512, 512)))
    before = pixels.clone()
    DevicePixels(ImageSettings(), CPU, torch.float32).patches(pixels)
    assert torch.equal(pixels, before)


def test_a_picture_that_is_too_thin_is_refused_as_on_the_cpu():
    thin = Image.new("RGB", (10000, 1))
    with pytest.raises(ImageSizeError) as usual:
        image_patches(thin, ImageSettings())
    with pytest.raises(ImageSizeError) as refused:
        DevicePixels(ImageSettings(), CPU, torch.float32).patches(pixels_of(thin))
    assert str(refused.value) == str(usual.value)

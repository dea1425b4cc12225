"""Every resampling filter that a checkpoint may name is the one that the reference takes for it."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Lfm2VlImageProcessor

from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pixels import image_patches


@pytest.mark.parametrize("resample", [0, 2, 3])
@pytest.mark.parametrize("size", [(300, 200), (1100, 800), (40, 30)])
def test_pixels_are_the_references_with_every_filter(resample: int, size: tuple[int, int]) -> None:
    noise = np.random.default_rng(resample).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    reference = Lfm2VlImageProcessor(resample=resample)([picture], return_tensors="pt")
    rows = torch.cat(
        [
            tile[mask.bool()]
            for tile, mask in zip(*map(reference.get, ("pixel_values", "pixel_attention_mask")), strict=True)
        ]
    )
    assert torch.equal(image_patches(picture, ImageSettings(resample=resample)).patches, rows)

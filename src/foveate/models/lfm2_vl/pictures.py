"""Whatever people have of pictures → patches: the two stages, on the host or on a device."""

from collections.abc import Sequence
from typing import Any, Protocol

from PIL import Image
from torch import Tensor

from foveate.images import ImageLimits, ImageSource, load_image
from foveate.models.lfm2_vl.image_patches import ImagePatches
from foveate.models.lfm2_vl.image_settings import ImageSettings


class Pictures(Protocol):
    """Decodes pictures and cuts them. What `decode` returns only its own `patches` need understand."""

    limits: ImageLimits
    most_at_once: int
    """Requests whose pictures are best decoded in one call, if so many wait."""

    def decode(self, sources: Sequence[ImageSource]) -> Sequence[Any]:
        """Return the pixels of each; raises the ImageError of the first one that cannot be used."""

    def patches(self, pictures: Sequence[Any]) -> list[ImagePatches]:
        """Cut decoded pictures into tiles and patches; raises ImageSizeError on one that is too thin."""


class HostPictures:
    """Pillow and torchvision on the CPU, one picture after another: the reference's own numbers, bit for bit."""

    most_at_once = 1
    """Threads do better apart: Pillow lets others go on while it works."""

    def __init__(self, settings: ImageSettings, limits: ImageLimits) -> None:
        # Imported where it is used: it brings torchvision, for which a model with pictures on the GPU need not wait.
        from foveate.models.lfm2_vl.pixels import image_patches

        self._settings, self.limits, self._cut = settings, limits, image_patches

    def decode(self, sources: Sequence[ImageSource]) -> list[Image.Image]:
        """Return pictures in mode RGB."""
        return [load_image(source, self.limits) for source in sources]

    def patches(self, pictures: Sequence[Image.Image]) -> list[ImagePatches]:
        """Cut pictures; the patches are on the host, in float32."""
        return [self._cut(picture, self._settings) for picture in pictures]


def orient(pixels: Tensor, orientation: int) -> Tensor:
    """Return `[height, width, 3]` pixels turned so that EXIF orientation `orientation` (1 to 8) shows upright."""
    if orientation >= 5:
        pixels = pixels.transpose(0, 1)
    axes = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(orientation)
    return pixels.flip(axes) if axes else pixels

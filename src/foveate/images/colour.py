"""Any kind of pixels to 8-bit RGB, by rules that do not change with the version of a library.

    1, L, P, RGBX, CMYK, YCbCr, LAB, HSV    as Pillow converts them; embedded colour profiles are ignored
    RGB                                      untouched, bit for bit
    alpha of any kind                        composited on white: round((colour * alpha + 255 * (255 - alpha)) / 255)
    I;16 and its byte orders                 round(value / 257)
    I (32-bit)                               as 16-bit where every value is from 0 to 65,535, otherwise refused
    F (floating point)                       refused

257 is 65535 / 255, so black and white stay black and white and 8-bit data widened to 16 bits comes back exactly.
Pillow keeps the high byte of 16-bit *colour* while it reads the file, which is at most one level less than rounding.
Floating-point pixels carry no agreed white level: any scale would be a guess that shows in the answer.
"""

from typing import Any

import numpy as np
from PIL import Image, ImageChops

from foveate.errors import UnreadableImageError
from foveate.images.failures import decoder_failures

__all__ = ["to_rgb"]


def to_rgb(image: Image.Image, name: str = "image") -> Image.Image:
    """Return `image` in mode RGB, of the same width and height; `name` is what an error message calls it.

    An RGB picture without transparency is returned itself, not copied. `image` is not changed, except that pixels which
    Pillow has not read yet are read.

    Raises:
        UnreadableImageError: The pixels cannot be read, or have no rule (see above).
        ImageSizeError: The memory does not suffice.
    """
    with decoder_failures(name, f"its pixels (mode {image.mode}) cannot be turned into RGB"):
        image.load()
        if image.mode == "F":
            raise UnreadableImageError(
                f"{name}: floating-point pixels have no agreed white level; scale them to 0..255 and save 8-bit pixels"
            )
        if image.mode == "I" or image.mode.startswith("I;16"):
            return _wide_grey_to_rgb(image, name)
        if image.mode in ("RGBa", "La"):
            return _premultiplied_on_white(image)
        if image.has_transparency_data:
            # Pillow writes the transparent entries into the palette of what it converts: not into the caller's.
            return _on_white((image.copy() if image.mode == "P" else image).convert("RGBA"))
        return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(rgba: Image.Image) -> Image.Image:
    """Composite an RGBA picture on white; Pillow's paste rounds to nearest, and 255 is odd, so there are no ties."""
    white = Image.new("RGB", rgba.size, (255, 255, 255))
    white.paste(rgba, mask=rgba)
    return white


def _premultiplied_on_white(image: Image.Image) -> Image.Image:
    """Composite colour that is already multiplied by alpha: adding what white shines through is exact."""
    *colours, alpha = image.split()
    through = ImageChops.invert(alpha)
    bands = [ImageChops.add(colour, through) for colour in colours]
    return Image.merge("RGB", bands * 3 if len(bands) == 1 else bands)


def _wide_grey_to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Scale 16-bit grey to 8 bits; a level named transparent (PNG's tRNS) becomes white."""
    levels: np.ndarray[Any, np.dtype[Any]] = np.asarray(image)  # [height, width], uint16 or int32
    if image.mode == "I" and (levels.min() < 0 or levels.max() > 65535):
        raise UnreadableImageError(
            f"{name}: 32-bit grey levels from {levels.min()} to {levels.max()} have no agreed white; "
            "0 to 65,535 are read as 16-bit grey: scale them first"
        )
    grey = ((np.arange(65536) + 128) // 257).astype(np.uint8)[levels]  # [height, width]
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[levels == transparent] = 255
    return Image.fromarray(grey).convert("RGB")

"""A picture as it stands in its file: format and size known, pixels not yet decoded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["EncodedImage", "SizeCheck"]

SizeCheck: TypeAlias = Callable[[int, int], None]
"""Called by a header reader with width and height as soon as it knows them; raises an ImageError to stop it there."""


@dataclass(frozen=True)
class EncodedImage:
    """One picture file whose header has been read and whose metadata has been taken off.

    Not a picture yet: nothing has been decoded, so it may be made of any bytes at the price of walking its header.
    """

    format: str
    """Pillow's name of the format: JPEG, PNG, WEBP, GIF, BMP or TIFF."""
    width: int
    """Pixels in a row as stored, before the orientation is applied."""
    height: int
    """Rows as stored, before the orientation is applied."""
    data: bytes
    """The file for the decoder: what the pixels need and no more. Text, profiles and EXIF are gone, and with them the
    warnings and the decompression bombs of a decoder that looks into them."""
    orientation: int = 1
    """How the stored pixels lie, 1 to 8 as in EXIF; 1 is upright."""
    is_plain_jpeg: bool = False
    """Whether it is a JPEG of which all good decoders make the same pixels, within a level; what a GPU may decode (see
    `foveate.images.formats.jpeg_kinds`)."""
    name: str = "image"
    """What error messages call it."""

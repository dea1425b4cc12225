"""Which way up a picture is."""

import struct
from typing import Final

from PIL import Image

__all__ = ["exif_orientation", "upright"]

_ORIENTATION_TAG: Final = 0x0112
_INTEGER_TYPES: Final = {1: "B", 3: "H", 4: "L"}
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def exif_orientation(exif: bytes) -> int:
    """Return the orientation, 1 to 8, that an EXIF block states, with or without its leading identifier.

    A block that is broken, or states none, gives 1: a good picture is never refused for its metadata. Only the first
    directory is read (EXIF 2.3, section 4.6.4). An orientation that stands in XMP alone is not looked for.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(order + "L", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, directory)
        for index in range(entries):
            tag, kind, count = struct.unpack_from(order + "HHL", tiff, directory + 2 + 12 * index)
            if tag == _ORIENTATION_TAG and kind in _INTEGER_TYPES and count == 1:
                (value,) = struct.unpack_from(order + _INTEGER_TYPES[kind], tiff, directory + 10 + 12 * index)
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:  # The block ends early; what stood before its end held no orientation.
        return 1
    return 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Return `image` turned and mirrored so that EXIF orientation `orientation` (1 to 8) shows upright.

    Pixels only move. An orientation of 1 returns `image` itself; 5 to 8 swap width and height.
    """
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)

"""BMP (Windows bitmap): a file header, an information header, a palette, rows."""

import struct
from typing import Final

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError

__all__ = ["read_bmp"]

_OS2_HEADER_BYTES: Final = 12
_RUN_LENGTH: Final = (1, 2)
# Pillow unpacks runs in Python, 40 ns a pixel: this many take most of a second, from a file of a few kilobytes.
_MOST_RUN_LENGTH_PIXELS: Final = 2**24


def read_bmp(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return the BMP file `data` with its size read, pixels not decoded.

    Raises:
        FormatError: It is damaged or cut off.
    """
    pixels_start, header_bytes = struct.unpack_from("<LL", data, 10)
    if header_bytes == _OS2_HEADER_BYTES:
        width, height, _, depth_bits = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, depth_bits, compression = struct.unpack_from("<llHHL", data, 18)
        height = abs(height)  # A negative height means rows from the top down.
    check_size(width, height)
    if compression in _RUN_LENGTH:
        if width * height > _MOST_RUN_LENGTH_PIXELS:
            raise FormatError(
                f"run-length coded pixels are read up to {_MOST_RUN_LENGTH_PIXELS:,}; save it uncompressed"
            )
    else:
        row_bytes = (width * depth_bits + 31) // 32 * 4
        if pixels_start + row_bytes * height > len(data):
            raise FormatError(f"it is cut off: its pixels need {row_bytes * height:,} bytes")
    return EncodedImage("BMP", width, height, data)

"""GIF (GIF89a specification): a screen, extensions, and frames of chained blocks."""

import struct
from typing import Final

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError

__all__ = ["read_gif"]

_EXTENSION, _FRAME, _GRAPHIC_CONTROL = 0x21, 0x2C, 0xF9
# Blocks hold up to 255 bytes and are written full: 64 MiB are a quarter of this.
_MOST_BLOCKS: Final = 2**20


def read_gif(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return a GIF file with the first frame of the GIF file `data` alone, pixels not decoded.

    A first frame larger than the screen enlarges it, as in Pillow. What follows the first frame is not looked at, but
    something must: a file that ends with its pixels has lost its end.

    Raises:
        FormatError: It is damaged or cut off.
    """
    width, height, flags, background, aspect = struct.unpack_from("<HHBBB", data, 6)
    position = 13 + _palette_bytes(flags)
    palette, control = data[13:position], b""
    while data[position] == _EXTENSION:
        label, start = data[position + 1], position + 2
        position = _after_blocks(data, start)
        if label == _GRAPHIC_CONTROL and data[start] == 4:
            transparent, index = data[start + 1] & 1, data[start + 4]
            # Delay and disposal are for what comes after the frame, and nothing does here.
            control = bytes((_EXTENSION, _GRAPHIC_CONTROL, 4, transparent, 0, 0, index, 0))
    if data[position] != _FRAME:
        raise FormatError("it has no frame")
    left, top, frame_width, frame_height, frame_flags = struct.unpack_from("<HHHHB", data, position + 1)
    width, height = max(width, left + frame_width), max(height, top + frame_height)
    check_size(width, height)
    if width > 65535 or height > 65535:
        raise FormatError("its first frame lies outside the largest screen")
    end = _after_blocks(data, position + 10 + _palette_bytes(frame_flags) + 1)
    if end >= len(data):
        raise FormatError("it is cut off, the mark of its end is missing")
    screen = struct.pack("<6sHHBBB", b"GIF89a", width, height, flags, background, aspect)
    return EncodedImage("GIF", width, height, b"".join((screen, palette, control, data[position:end], b";")))


def _palette_bytes(flags: int) -> int:
    """Return the size of the palette, 3 bytes a colour, that the flags of a screen or frame announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, position: int) -> int:
    """Return the position after a chain of blocks, each led by its length, the last of length 0."""
    for _ in range(_MOST_BLOCKS):
        length = data[position]
        position += 1 + length
        if length == 0:
            return position
    raise FormatError(f"it has more than {_MOST_BLOCKS:,} blocks")

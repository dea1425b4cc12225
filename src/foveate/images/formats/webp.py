"""WebP (RFC 9649): RIFF chunks around VP8 or VP8L pixels."""

import struct
from collections.abc import Iterator
from typing import Final

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError
from foveate.images.orientation import exif_orientation

__all__ = ["read_webp"]

# One chunk per frame of an animation, and a few more.
_MOST_CHUNKS: Final = 65536
# A canvas may be larger than any frame that fills it, and the decoder allocates it three times over.
_LONGEST_SIDE: Final = 16383


def read_webp(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return the WebP file `data` with its size and orientation read, pixels not decoded.

    Its metadata stays in: the decoder hands it over unread.

    Raises:
        FormatError: It is damaged or cut off.
    """
    (stated,) = struct.unpack_from("<L", data, 4)
    chunks = _chunks(data, 8 + stated)
    width, height = _size(*next(chunks, (b"", memoryview(b""))))
    check_size(width, height)
    if max(width, height) > _LONGEST_SIDE:
        raise FormatError(f"it states {width}x{height} pixels; a WebP frame has at most {_LONGEST_SIDE} a side")
    if 8 + stated > len(data):
        raise FormatError(f"it is cut off: it states {8 + stated:,} bytes and has {len(data):,}")
    exif = next((bytes(payload) for kind, payload in chunks if kind == b"EXIF"), b"")
    return EncodedImage("WEBP", width, height, data, exif_orientation(exif))


def _chunks(data: bytes, end: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind and the payload of each chunk before `end`."""
    position = 12
    for _ in range(_MOST_CHUNKS):
        if position + 8 > end:
            return
        kind, length = struct.unpack_from("<4sL", data, position)
        yield kind, memoryview(data)[position + 8 : position + 8 + length]
        position += 8 + length + length % 2
    raise FormatError(f"it has more than {_MOST_CHUNKS} chunks")


def _size(kind: bytes, payload: memoryview) -> tuple[int, int]:
    """Return width and height, in pixels, of the canvas that the first chunk states."""
    if kind == b"VP8X" and len(payload) >= 10:
        return 1 + int.from_bytes(payload[4:7], "little"), 1 + int.from_bytes(payload[7:10], "little")
    if kind == b"VP8 " and len(payload) >= 10 and bytes(payload[3:6]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", payload, 6)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(payload) >= 5 and payload[0] == 0x2F:
        bits = int.from_bytes(payload[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    raise FormatError("it does not begin with its size")

"""PNG (ISO/IEC 15948): a chain of chunks, each with a check sum."""

import struct
import zlib
from typing import Final, NamedTuple

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError
from foveate.images.orientation import exif_orientation

__all__ = ["read_png"]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# Animation, text, profiles and times are left behind; the first frame of an animation is the picture in IDAT.
_PIXEL_CHUNKS: Final = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_BEFORE_PIXELS: Final = (b"PLTE", b"tRNS")
# Writers cut pixels into pieces of 8 KiB or more: 64 MiB are 8192 pieces.
_MOST_CHUNKS: Final = 65536
_GREY, _COLOUR = 0, 2
_CHANNELS: Final = {_GREY: 1, _COLOUR: 3, 3: 1, 4: 2, 6: 4}
# Deflate makes of one byte at most this many.
_MOST_DEFLATED: Final = 1032


class _Header(NamedTuple):
    """The IHDR chunk."""

    width: int
    height: int
    bit_depth: int
    colour_type: int

    @property
    def pixel_bytes(self) -> int:
        """What the pixels take uncompressed, at least."""
        return self.width * self.height * self.bit_depth * _CHANNELS.get(self.colour_type, 1) // 8


def read_png(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return the PNG file `data` with nothing but the chunks its pixels need, not decoded.

    The check sums of those chunks are verified, so a changed byte in the pixels is found out rather than shown.

    Raises:
        FormatError: It is damaged or cut off.
    """
    header, orientation, position, pixel_bytes = None, None, len(_SIGNATURE), 0
    kept: list[bytes | memoryview] = [_SIGNATURE]
    for _ in range(_MOST_CHUNKS):
        start = position
        kind, position = _next_chunk(data, start)
        whole = memoryview(data)[start:position]
        payload = whole[8:-4]
        if header is None:
            header = _read_header(kind, payload)
            check_size(header.width, header.height)
        elif kind == b"IHDR":
            raise FormatError("it states its size twice")
        if kind == b"eXIf" and orientation is None:
            orientation = exif_orientation(bytes(payload))
        if kind not in _PIXEL_CHUNKS or (kind in _BEFORE_PIXELS and pixel_bytes):
            continue
        kept.append(_transparency(header, bytes(payload)) if kind == b"tRNS" else whole)
        pixel_bytes += len(payload) if kind == b"IDAT" else 0
        if kind == b"IEND":
            if pixel_bytes * _MOST_DEFLATED < header.pixel_bytes:
                raise FormatError(f"{pixel_bytes:,} bytes cannot hold {header.width}x{header.height} pixels")
            return EncodedImage("PNG", header.width, header.height, b"".join(kept), orientation or 1)
    raise FormatError(f"it has more than {_MOST_CHUNKS} chunks")


def _next_chunk(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the kind and the end of the chunk at `position`, its check sum verified where the pixels depend on it."""
    if position + 12 > len(data):
        raise FormatError("it is cut off, its last chunk (IEND) is missing")
    length, kind = struct.unpack_from(">L4s", data, position)
    end = position + 12 + length
    if end > len(data):
        raise FormatError("it is cut off inside a chunk")
    if kind in _PIXEL_CHUNKS:
        (stated,) = struct.unpack_from(">L", data, end - 4)
        if zlib.crc32(memoryview(data)[position + 4 : end - 4]) != stated:
            raise FormatError(f"the check sum of a chunk ({kind.decode()}) is wrong")
    return kind, end


def _read_header(kind: bytes, payload: memoryview) -> _Header:
    if kind != b"IHDR" or len(payload) != 13:
        raise FormatError("it does not begin with its size (IHDR)")
    return _Header(*struct.unpack_from(">LLBB", payload))


def _transparency(header: _Header, payload: bytes) -> bytes:
    """Return the tRNS chunk with its level or colour in the levels that Pillow decodes to.

    Pillow widens 2- and 4-bit grey to 8 bits and narrows 16-bit colour to its high byte, and compares the result with
    the number as the file has it.
    """
    if header.colour_type == _GREY and len(payload) == 2:
        level = int.from_bytes(payload) & ((1 << header.bit_depth) - 1)
        payload = (level * {2: 85, 4: 17}.get(header.bit_depth, 1)).to_bytes(2)
    elif header.colour_type == _COLOUR and header.bit_depth == 16 and len(payload) == 6:
        payload = bytes((0, payload[0], 0, payload[2], 0, payload[4]))
    return struct.pack(">L4s", len(payload), b"tRNS") + payload + struct.pack(">L", zlib.crc32(b"tRNS" + payload))

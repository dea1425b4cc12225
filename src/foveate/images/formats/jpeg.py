"""JPEG (ITU-T T.81): segments up to the first scan, then the scans."""

import re
from typing import Final, NamedTuple

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError
from foveate.images.formats.jpeg_kinds import TABLES, first_mark, is_plain, tables_in
from foveate.images.orientation import exif_orientation

__all__ = ["read_jpeg"]

# The FF right before a byte that opens a segment; fill bytes, stray bytes and restart marks are passed over.
_SEGMENT: Final = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Huffman-coded, without progression.
_SEQUENTIAL: Final = (0xC0, 0xC1)
_SCAN, _END, _APP1, _ADOBE, _COMMENT = 0xDA, 0xD9, 0xE1, 0xEE, 0xFE
# Without APP0 (JFIF) and APP14 (Adobe) a decoder cannot tell RGB from YCbCr; no other application segment has a say.
_METADATA: Final = frozenset(range(0xE0, 0xF0)) - {0xE0, 0xEE} | {_COMMENT}
# Metadata comes in pieces of 64 KiB: a thousand are already 64 MiB.
_MOST_SEGMENTS: Final = 4096
# A progressive file has about ten scans; each costs a pass over all pixels, so thousands are an attack.
_MOST_SCANS: Final = 100
# A Huffman code has at least one bit, and a block of 8x8 pixels at least one code.
_HUFFMAN: Final = (0xC0, 0xC1, 0xC2)
_MOST_PIXELS_A_BYTE: Final = 512


class _Frame(NamedTuple):
    """The SOF segment: the kind of coding, the size in pixels, and the whole."""

    marker: int
    width: int
    height: int
    payload: bytes


def read_jpeg(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return the JPEG file `data` without its metadata, pixels not decoded.

    Of a file that holds several pictures (MPO, a motion photo) it is the first. A file without an end mark is refused:
    a decoder would fill the missing rows with grey.

    Raises:
        FormatError: It is damaged or cut off.
    """
    view, frame, orientation, adobe, position = memoryview(data), None, None, None, 2
    kept, tables = [view[:2]], set[bytes]()
    for _ in range(_MOST_SEGMENTS):
        marker, payload, position = _next_segment(data, position)
        if marker in _FRAMES:
            if frame is not None:
                raise FormatError("it states its size twice")
            frame = _Frame(marker, int.from_bytes(payload[3:5]), int.from_bytes(payload[1:3]), payload)
            check_size(frame.width, frame.height)
        elif marker == _APP1 and payload.startswith(b"Exif\0\0") and orientation is None:
            orientation = exif_orientation(payload)
        elif marker == _ADOBE and payload.startswith(b"Adobe"):
            adobe = payload
        elif marker in TABLES:
            tables.update(tables_in(marker, payload))
        elif marker == _SCAN:
            if frame is None:
                raise FormatError("its pixels come before its size")
            end, is_only_scan = _check_scans(data, position, frame)
            kept.append(view[position - len(payload) - 4 : end if is_only_scan else None])
            plain = is_only_scan and frame.marker in _SEQUENTIAL and is_plain(frame.payload, payload, adobe, tables)
            return EncodedImage("JPEG", frame.width, frame.height, b"".join(kept), orientation or 1, plain)
        if marker not in _METADATA:
            kept.append(view[position - len(payload) - 4 : position])
    raise FormatError(f"it has more than {_MOST_SEGMENTS} segments before its pixels")


def _next_segment(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Return the marker, the payload and the end of the segment that follows `position`."""
    found = _SEGMENT.search(data, position)
    if found is None or found[1][0] == _END:
        raise FormatError("it ends before its pixels")
    start = found.end()
    end = start + int.from_bytes(data[start : start + 2])
    if end < start + 2 or end > len(data):
        raise FormatError("a segment runs past the end of the file")
    return found[1][0], data[start + 2 : end], end


def _check_scans(data: bytes, start: int, frame: _Frame) -> tuple[int, bool]:
    """Return where the first picture ends whose coded pixels begin at `start`, and whether it is a single scan.

    Refuses scans without an end, scans without number, and scans far too short for their picture. In coded pixels an FF
    byte is never followed by a mark, so marks can be looked for.
    """
    position, mark = first_mark(data, start)
    is_only_scan = mark == _END
    end = position if is_only_scan else data.find(b"\xff\xd9", start)
    if end < 0:
        raise FormatError("it is cut off, the mark of its end is missing")
    if not is_only_scan and 1 + data.count(b"\xff\xda", start, end) > _MOST_SCANS:
        raise FormatError(f"it has more than {_MOST_SCANS} scans")
    if frame.marker in _HUFFMAN and (end - start) * _MOST_PIXELS_A_BYTE < frame.width * frame.height:
        raise FormatError(f"it is cut off: {end - start:,} bytes cannot hold {frame.width}x{frame.height} pixels")
    return end + 2, is_only_scan

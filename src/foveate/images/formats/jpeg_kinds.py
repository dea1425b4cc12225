"""Which JPEG files are of the ordinary kind, whose pixels do not depend on whose decoder makes them.

Within a level, that is: the inverse transform may be rounded differently (ITU-T T.83). Beyond it, decoders differ in
what stands outside of T.81: which colours three components are, how subsampled chroma is enlarged, and what becomes of
a file whose scans are missing or damaged. A file is plain where none of these questions arises.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

__all__ = ["TABLES", "first_mark", "is_plain", "tables_in"]

QUANTISATION: Final = 0xDB
TABLES: Final = frozenset({QUANTISATION, 0xC4})
"""The marks of the segments that define tables."""

# Horizontal and vertical sampling factors, a byte a component: 4:4:4, 4:2:2 and 4:2:0.
_CHROMA: Final = frozenset({b"\x11\x11\x11", b"\x21\x11\x11", b"\x22\x11\x11"})
# libjpeg repeats chroma instead of interpolating it in pictures of a few columns; small ones gain nothing anyway.
_FEWEST_PIXELS_A_SIDE: Final = 32
_CHUNK_BYTES: Final = 2**20


def is_plain(frame: bytes, scan: bytes, adobe: bytes | None, tables: Iterable[bytes]) -> bool:
    """Say whether a JPEG file of one sequential, Huffman-coded scan is plain.

    That is: all components are in the scan; they have 8 bits; they are grey, or YCbCr of 4:4:4, 4:2:2 or 4:2:0 by every
    rule that is in use; the picture has at least 32 pixels a side; and the tables are there that it names.

    Args:
        frame: The payload of the frame header (T.81, B.2.2): precision, height, width, then three bytes a component.
        scan: The payload of the scan header (B.2.3), which begins with a number of components.
        adobe: The payload of Adobe's application segment, if there is one.
        tables: The names of the tables that the file holds (see `tables_in`).
    """
    if len(frame) < 6 or frame[0] != 8 or len(frame) != 6 + 3 * frame[5] or scan[:1] != frame[5:6]:
        return False
    if min(int.from_bytes(frame[1:3]), int.from_bytes(frame[3:5])) < _FEWEST_PIXELS_A_SIDE:
        return False
    wanted = {b"Q%d" % number for number in frame[8::3]}
    wanted |= {
        b"%d%d" % (kind, both >> 4 if kind == 0 else both & 15)
        for both in scan[2 : 1 + 2 * scan[0] : 2]
        for kind in (0, 1)
    }
    if not wanted <= set(tables):
        return False
    names, sampling = frame[6::3], frame[7::3]
    if len(names) == 1:
        return sampling == b"\x11"
    is_ycbcr = names == b"\1\2\3" and (adobe is None or adobe[11:12] == b"\1")
    return is_ycbcr and sampling in _CHROMA


def tables_in(marker: int, payload: bytes) -> Iterator[bytes]:
    """Yield the names of the tables that a segment defines: Q and a number for quantisation (T.81, B.2.4.1), 0 or 1 and
    a number for the Huffman codes of DC or AC coefficients (B.2.4.2). What is cut short defines nothing."""
    at = 0
    while marker in TABLES and at < len(payload):
        upper, number = divmod(payload[at], 16)
        is_quantisation = marker == QUANTISATION
        length = 64 * (1 + upper) if is_quantisation else 16 + sum(payload[at + 1 : at + 17])
        at += 1 + length
        if at <= len(payload):
            yield (b"Q%d" % number) if is_quantisation else b"%d%d" % (upper, number)


def first_mark(data: bytes, start: int) -> tuple[int, int]:
    """Return where the first mark in coded pixels is and its second byte; (-1, 0) where there is none.

    A mark is an FF byte and one that says what follows: not a stuffed zero, a fill byte or a restart mark. (NumPy finds
    it in a quarter of the time that `bytes.find` takes for one kind of mark: every 256th byte is FF.)
    """
    codes = np.frombuffer(data, np.uint8)
    for first in range(start, len(data) - 1, _CHUNK_BYTES):
        chunk = codes[first : first + _CHUNK_BYTES + 1]
        after = np.flatnonzero(chunk[:-1] == 0xFF) + 1
        following = chunk[after]
        marks = after[(following != 0) & (following != 0xFF) & (following & 0xF8 != 0xD0)]
        if marks.size:
            return first + int(marks[0]) - 1, int(chunk[marks[0]])
    return -1, 0

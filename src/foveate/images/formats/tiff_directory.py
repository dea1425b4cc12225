"""The directory of a TIFF 6.0 or BigTIFF file: tags and their values."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from foveate.images.failures import FormatError

__all__ = ["ORIENTATION", "TiffDirectory"]

ORIENTATION: Final = 274
# The tags that pixels depend on. Pillow warns about a tag of the first kind with more than one value.
_ONE_VALUE: Final = frozenset(
    (256, 257, 259, 262, 266, 277, 278, 284, 292, 293, 317, 322, 323, 332, 512, 513, 514, 515, 531)
)
_MANY_VALUES: Final = frozenset((258, 273, 279, 320, 324, 325, 338, 339, 347, 517, 518, 519, 520, 521, 529, 530, 532))
_VALUE_BYTES: Final = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), start=1)) | {16: 8, 17: 8, 18: 8}
_INTEGERS: Final = {1: "B", 3: "H", 4: "L", 13: "L", 16: "Q", 18: "Q"}
# Files have twenty tags, and pieces no smaller than a row or 16x16 pixels; each entry and piece is a turn of a loop.
_MOST_ENTRIES: Final = 4096
_MOST_VALUES: Final = 2**16


@dataclass(frozen=True)
class _Layout:
    """How classic TIFF and BigTIFF are laid out, as codes of `struct`."""

    order: str
    number_of_entries: str
    offset: str
    header_bytes: int

    @property
    def entry(self) -> str:
        """Tag, type, number of values, and the values or where they are."""
        return f"{self.order}HH{self.offset}{struct.calcsize(self.order + self.offset)}s"


@dataclass(frozen=True)
class TiffDirectory:
    """The first directory of a file: the tags that pixels depend on, each once, and the orientation where it is sound.

    Each value lies within the file; that is checked when it is read.
    """

    data: bytes
    layout: _Layout
    entries: dict[int, bytes]

    @classmethod
    def read(cls, data: bytes) -> "TiffDirectory":
        """Read the first directory of the file `data`; raise FormatError where it is damaged."""
        order = "<" if data[:2] == b"II" else ">"
        (version,) = struct.unpack_from(order + "H", data, 2)
        layout = _Layout(order, "Q", "Q", 16) if version == 43 else _Layout(order, "H", "L", 8)
        (start,) = struct.unpack_from(order + layout.offset, data, layout.header_bytes // 2)
        return cls(data, layout, dict(_sound_entries(data, layout, start)))

    def values(self, tag: int, *default: int) -> tuple[int, ...]:
        """Return the whole numbers of `tag`, `default` where the file does not have it."""
        if tag not in self.entries:
            return default
        _, kind, number, inline = struct.unpack(self.layout.entry, self.entries[tag])
        if kind not in _INTEGERS:
            raise FormatError(f"its tag {tag} holds no whole numbers")
        if number > _MOST_VALUES:
            raise FormatError(f"its tag {tag} has {number:,} values; up to {_MOST_VALUES:,} are read")
        code = f"{self.layout.order}{number}{_INTEGERS[kind]}"
        if struct.calcsize(code) <= len(inline):
            return struct.unpack_from(code, inline)
        (start,) = struct.unpack(self.layout.order + self.layout.offset, inline)
        return struct.unpack_from(code, self.data, start)

    def value(self, tag: int, default: int) -> int:
        """Return the one whole number of `tag`, `default` where the file does not have it."""
        return self.values(tag, default)[0]

    def alone(self) -> bytes:
        """Return the file with this as its only directory: no metadata, no further pages, no orientation.

        It is put at the end. Its entries are copied as they are: the values that they point at have not moved.
        """
        layout, data = self.layout, self.data
        entries = [entry for tag, entry in sorted(self.entries.items()) if tag != ORIENTATION]
        start = len(data) + len(data) % 2
        header = data[: layout.header_bytes // 2] + struct.pack(layout.order + layout.offset, start)
        number = struct.pack(layout.order + layout.number_of_entries, len(entries))
        end = struct.pack(layout.order + layout.offset, 0)
        return b"".join(
            (header, memoryview(data)[layout.header_bytes :], b"\0" * (start - len(data)), number, *entries, end)
        )


def _sound_entries(data: bytes, layout: _Layout, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield each tag that matters with its entry as it stands in the file, the first where a tag is repeated."""
    (number_of_entries,) = struct.unpack_from(layout.order + layout.number_of_entries, data, start)
    start, size = start + struct.calcsize(layout.order + layout.number_of_entries), struct.calcsize(layout.entry)
    if number_of_entries > _MOST_ENTRIES:
        raise FormatError(f"its directory has {number_of_entries:,} entries; up to {_MOST_ENTRIES:,} are read")
    if start + number_of_entries * size > len(data):
        raise FormatError("it is cut off inside its directory")
    seen: set[int] = set()
    outside_bytes = 0
    for position in range(start, start + number_of_entries * size, size):
        tag, kind, number, inline = struct.unpack_from(layout.entry, data, position)
        if tag in seen or not _matters(tag, kind, number):
            continue
        seen.add(tag)
        if kind not in _VALUE_BYTES or (tag in _ONE_VALUE and number != 1):
            raise FormatError(f"its tag {tag} has {number:,} values of type {kind}")
        if number * _VALUE_BYTES[kind] > len(inline):
            (offset,) = struct.unpack(layout.order + layout.offset, inline)
            outside_bytes += number * _VALUE_BYTES[kind]
            if max(offset + number * _VALUE_BYTES[kind], outside_bytes) > len(data):
                raise FormatError(f"the values of its tag {tag} run past the end of the file")
        yield tag, data[position : position + size]


def _matters(tag: int, kind: int, number: int) -> bool:
    """Say whether pixels depend on the tag; a senseless orientation is as good as none."""
    if tag == ORIENTATION:
        return number == 1 and kind in _INTEGERS
    return number > 0 and (tag in _ONE_VALUE or tag in _MANY_VALUES)

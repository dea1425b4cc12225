"""TIFF 6.0 and BigTIFF: a directory of tags that points at strips or tiles of pixels."""

from typing import Final

from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError
from foveate.images.formats.tiff_directory import ORIENTATION, TiffDirectory

__all__ = ["read_tiff"]

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_BYTES, _PLANAR = 273, 277, 278, 279, 284
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES = 322, 323, 324, 325
# A tile may be larger than the picture, and the decoder allocates it whole.
_MOST_TILE_PIXELS: Final = 2**24
_MOST_SAMPLES: Final = 6
_UNCOMPRESSED, _JPEG = 1, 7


def read_tiff(data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Return the first page of the TIFF file `data` with the tags that its pixels need, pixels not decoded.

    Raises:
        FormatError: It is damaged or cut off, or of a kind that Pillow would show wrongly.
    """
    directory = TiffDirectory.read(data)
    width, height = directory.value(_WIDTH, 0), directory.value(_HEIGHT, 0)
    check_size(width, height)
    orientation = directory.value(ORIENTATION, 1)
    _check_kind(directory)
    _check_pieces(directory, width, height)
    return EncodedImage("TIFF", width, height, directory.alone(), orientation if 1 <= orientation <= 8 else 1)


def _check_kind(directory: TiffDirectory) -> None:
    """Refuse what Pillow reads without complaint and shows wrongly, or complains about in the log."""
    photometric, bits = directory.value(_PHOTOMETRIC, 0), directory.values(_BITS, 1)
    if photometric in (0, 1) and bits == (12,):
        raise FormatError("12-bit grey is not read; save it with 8 or 16 bits")
    if photometric == 0 and bits[0] > 8:
        raise FormatError("grey of more than 8 bits with white as 0 is not read; save it with black as 0")
    if directory.value(_SAMPLES, 1) > _MOST_SAMPLES:
        raise FormatError(f"it has {directory.value(_SAMPLES, 1):,} channels; up to {_MOST_SAMPLES} are read")
    if photometric == 6 and directory.value(_COMPRESSION, _UNCOMPRESSED) == _UNCOMPRESSED:
        # Up to version 12 Pillow takes it for RGB with a fourth byte, and no version expects subsampled colour here.
        raise FormatError("uncompressed YCbCr is not read; save it as RGB")


def _check_pieces(directory: TiffDirectory, width: int, height: int) -> None:
    """Check that every strip or tile is there; Pillow leaves a missing one black."""
    tiled = _TILE_OFFSETS in directory.entries
    if tiled:
        columns, rows = directory.value(_TILE_WIDTH, 0), directory.value(_TILE_HEIGHT, 0)
    else:
        columns, rows = width, min(directory.value(_ROWS_PER_STRIP, height), height)
    if min(width, height, columns, rows) < 1 or columns * rows > max(width * height, _MOST_TILE_PIXELS):
        raise FormatError(f"it is {width}x{height} pixels in pieces of {columns}x{rows}")
    planes = directory.value(_SAMPLES, 1) if directory.value(_PLANAR, 1) == 2 else 1
    pieces = -(-width // columns) * -(-height // rows) * planes
    offsets = directory.values(_TILE_OFFSETS if tiled else _STRIP_OFFSETS)
    lengths = directory.values(_TILE_BYTES if tiled else _STRIP_BYTES)
    if len(offsets) < pieces or (lengths and len(lengths) != len(offsets)):
        raise FormatError(f"it has {len(offsets):,} of its {pieces:,} pieces")
    _check_bytes(directory, list(zip(offsets, lengths, strict=False)))


def _check_bytes(directory: TiffDirectory, pieces: list[tuple[int, int]]) -> None:
    """Check that each piece, an offset and a length in bytes, lies within the file and is whole."""
    data, compression = directory.data, directory.value(_COMPRESSION, _UNCOMPRESSED)
    if any(offset + length > len(data) for offset, length in pieces):
        raise FormatError("it is cut off inside its pixels")
    if compression == _UNCOMPRESSED and pieces:
        stated, needed = sum(length for _, length in pieces), _pixel_bytes(directory)
        if stated < needed:
            raise FormatError(f"its pixels need {needed:,} bytes and it has {stated:,}")
    # The decoder would add the missing end of a JPEG piece and fill the rest with grey.
    if compression == _JPEG and any(data.find(b"\xff\xd9", offset, offset + length) < 0 for offset, length in pieces):
        raise FormatError("it is cut off inside its pixels, the mark of their end is missing")


def _pixel_bytes(directory: TiffDirectory) -> int:
    """Return what the pixels take uncompressed, each row a whole number of bytes."""
    bits, samples = directory.values(_BITS, 1), directory.value(_SAMPLES, 1)
    pixel_bits = sum(bits) if len(bits) > 1 else bits[0] * samples
    return directory.value(_WIDTH, 0) * pixel_bits // 8 * directory.value(_HEIGHT, 0)

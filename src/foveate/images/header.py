"""Which format a file is, and what its header says."""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from foveate.errors import UnreadableImageError
from foveate.images.encoded import EncodedImage, SizeCheck
from foveate.images.failures import FormatError, decoder_failures
from foveate.images.formats.bmp import read_bmp
from foveate.images.formats.gif import read_gif
from foveate.images.formats.jpeg import read_jpeg
from foveate.images.formats.png import read_png
from foveate.images.formats.tiff import read_tiff
from foveate.images.formats.webp import read_webp
from foveate.images.limits import DEFAULT_LIMITS, ImageLimits

__all__ = ["read_header"]

_READ: Final = "JPEG, PNG, WebP, GIF, BMP and TIFF are read"
_Reader: TypeAlias = Callable[[bytes, SizeCheck], EncodedImage]
_READERS: Final[tuple[tuple[bytes, str, _Reader], ...]] = (
    (b"\xff\xd8\xff", "JPEG", read_jpeg),
    (b"\x89PNG\r\n\x1a\n", "PNG", read_png),
    (b"RIFF....WEBP", "WebP", read_webp),
    (b"GIF87a", "GIF", read_gif),
    (b"GIF89a", "GIF", read_gif),
    (b"BM", "BMP", read_bmp),
    (b"II*\0", "TIFF", read_tiff),
    (b"MM\0*", "TIFF", read_tiff),
    (b"II+\0", "TIFF", read_tiff),
    (b"MM\0+", "TIFF", read_tiff),
)
_OTHERS: Final = (
    (b"%PDF", "a PDF document"),
    (b"....ftyphei", "a HEIC picture"),
    (b"....ftyphev", "a HEIC picture"),
    (b"....ftypmif1", "a HEIC or AVIF picture"),
    (b"....ftypavi", "an AVIF picture"),
    (b"....ftyp", "a video"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"....JXL ", "a JPEG XL picture"),
    (b"....jP  ", "a JPEG 2000 picture"),
    (b"8BPS", "a Photoshop document"),
    (b"\0\0\1\0", "an icon (ICO)"),
    (b"PK\3\4", "a ZIP archive"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file that it stands for"),
)


def read_header(data: bytes, limits: ImageLimits = DEFAULT_LIMITS, name: str = "image") -> EncodedImage:
    """Return the format, the size and the orientation of the picture file `data`; `name` is for error messages.

    No pixel is decoded.

    Raises:
        ImageSizeError: It is beyond `limits`.
        UnreadableImageError: It is not a picture, not of a format that is read, damaged, or cut off.
    """
    limits.check_bytes(len(data), name)
    check_size = partial(limits.check_pixels, name=name)
    for signature, format_name, reader in _READERS:
        if _begins(data, signature):
            with decoder_failures(name, f"the {format_name} file cannot be read"):
                return replace(_read(reader, data, check_size), name=name)
    raise UnreadableImageError(f"{name}: {_other_kind(data)}; {_READ}")


def _read(reader: _Reader, data: bytes, check_size: SizeCheck) -> EncodedImage:
    """Run a reader; reaching past the end of the bytes is how the readers notice a file that is cut off."""
    try:
        return reader(data, check_size)
    except (IndexError, struct.error):
        raise FormatError("it is cut off inside its header") from None


def _begins(data: bytes, signature: bytes) -> bool:
    """Say whether `data` begins with `signature`, in which a dot stands for any byte."""
    head = data[: len(signature)]
    return len(head) == len(signature) and all(s in (b, ord(".")) for s, b in zip(signature, head, strict=True))


def _other_kind(data: bytes) -> str:
    """Name what the bytes are instead of a picture that is read."""
    text = data[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<svg", b"<?xml")) and b"<svg" in text:
        return "it is an SVG drawing"
    if text.startswith((b"<!doctype html", b"<html")):
        return "it is a web page (HTML)"
    for signature, kind in _OTHERS:
        if _begins(data, signature):
            return f"it is {kind}"
    return f"it is not a picture (it begins with the bytes {data[:8].hex(' ')})"

"""Whatever a caller has of a picture, to RGB pixels."""

import os
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from foveate.errors import UnreadableImageError
from foveate.images.colour import to_rgb
from foveate.images.decoding import decode_encoded
from foveate.images.encoded import EncodedImage
from foveate.images.failures import decoder_failures
from foveate.images.files import picture_name, read_picture_file
from foveate.images.header import read_header
from foveate.images.limits import DEFAULT_LIMITS, ImageLimits
from foveate.images.orientation import exif_orientation, upright

__all__ = ["ImageSource", "load_image", "read_source"]

ImageSource: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | npt.NDArray[np.uint8] | EncodedImage
"""A path, the bytes of a picture file, a Pillow picture, RGB pixels as a uint8 array [height, width, 3], or what
`read_source` made of one of the first two."""


def load_image(source: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Return the picture `source` in mode RGB, upright, under the rules of `decode_image`.

    A `str` is a path and is never fetched. Of a Pillow picture it is the current frame, turned by the EXIF block in its
    `info`; one that is upright RGB already is returned itself. Pixels that Pillow has not read yet are read into it, by
    Pillow's own rules and warnings, so two threads should not share it before that. An array is copied.

    Raises:
        UnreadableImageError: There is no such file, it is not a regular file or not a picture, it is damaged or cut
            off, or `source` is of another kind.
        ImageSizeError: Beyond `limits`, found out before anything is decoded.
    """
    encoded = read_source(source, limits)
    if encoded is not None:
        return decode_encoded(encoded)
    if isinstance(source, Image.Image):
        return _from_pillow(source, limits)
    if isinstance(source, np.ndarray):
        return _from_array(source, limits)
    raise UnreadableImageError(
        f"image: a picture is a path, bytes, a Pillow image or a uint8 array, not {type(source).__name__}"
    )


def read_source(source: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> EncodedImage | None:
    """Return the picture file `source`, a path or bytes, with its header read and no pixel decoded; once read it is
    returned itself.

    None where `source` is neither: pixels, or of a kind that `load_image` refuses.

    Raises:
        ImageError: As `load_image` does over a file's size and header.
    """
    if isinstance(source, EncodedImage):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return read_header(bytes(source), limits)
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        _refuse_address(path)
        return read_header(read_picture_file(path, limits), limits, picture_name(path))
    return None


def _refuse_address(path: str) -> None:
    scheme = path[:8].lower()
    if scheme.startswith(("http://", "https://")):
        raise UnreadableImageError("image: a web address is not fetched here; download it and give its path or bytes")
    if scheme.startswith("data:"):
        raise UnreadableImageError("image: a data: address is not a path; decode its base64 part and give the bytes")
    if scheme.startswith("file://"):
        raise UnreadableImageError("image: a file:// address is not a path; give the path alone")


def _from_pillow(image: Image.Image, limits: ImageLimits) -> Image.Image:
    name = picture_name(getattr(image, "filename", "") or "image")
    limits.check_pixels(image.width, image.height, name)
    with decoder_failures(name, "Pillow cannot read its pixels"):
        image.load()
    exif = image.info.get("exif")
    return upright(to_rgb(image, name), exif_orientation(exif) if isinstance(exif, bytes) else 1)


def _from_array(array: npt.NDArray[np.uint8], limits: ImageLimits) -> Image.Image:
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise UnreadableImageError(
            f"image: an array has to be uint8 of shape [height, width, 3] in RGB order, not {array.dtype} of shape "
            f"{list(array.shape)}"
        )
    limits.check_pixels(array.shape[1], array.shape[0], "image")
    return Image.fromarray(array)

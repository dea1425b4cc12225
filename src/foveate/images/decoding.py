"""Bytes to RGB pixels."""

from io import BytesIO
from typing import Final

from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from foveate.images.colour import to_rgb
from foveate.images.encoded import EncodedImage
from foveate.images.failures import FormatError, decoder_failures
from foveate.images.header import read_header
from foveate.images.limits import DEFAULT_LIMITS, ImageLimits
from foveate.images.orientation import upright

__all__ = ["decode_encoded", "decode_image"]

_DECODERS: Final[dict[str, type[ImageFile]]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WEBP": WebPImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "TIFF": TiffImageFile,
}
# Pillow joins what it reads to what is left of the last row: in its blocks of 64 KiB a row of 64 MiB takes a minute.
_READ_BYTES: Final = 2**20


def decode_image(data: bytes, limits: ImageLimits = DEFAULT_LIMITS, name: str = "image") -> Image.Image:
    """Return the picture in the file `data` as upright RGB pixels; `name` is what error messages call it.

    JPEG, PNG, WebP, GIF, BMP and TIFF are read, the first frame or page of each. How other pixels become RGB stands in
    `foveate.images.colour`. Nothing is kept between calls, and no setting of Pillow, of the warnings or of the process
    is touched: any number of threads may call this at once.

    Raises:
        UnreadableImageError: Not a picture, not of a format that is read, damaged, or cut off.
        ImageSizeError: Beyond `limits`, found out before anything is decoded.
    """
    return decode_encoded(read_header(data, limits, name))


def decode_encoded(encoded: EncodedImage) -> Image.Image:
    """Return the picture whose header was read as upright RGB pixels; see `decode_image`.

    Raises:
        UnreadableImageError: It is damaged, cut off, or of a rare kind.
        ImageSizeError: The memory does not suffice.
    """
    with decoder_failures(
        encoded.name, f"the {encoded.format} file is damaged, cut off, or of a rare kind; save it again as JPEG or PNG"
    ):
        image = _decode(encoded)
    return upright(to_rgb(image, encoded.name), encoded.orientation)


def _decode(encoded: EncodedImage) -> Image.Image:
    """Run Pillow's decoder of this format.

    The decoder's class is called, not `Image.open`: that one warns by the process-wide `Image.MAX_IMAGE_PIXELS`, tries
    other formats, and imports plugins while other threads run. Warnings cannot be caught per thread before Python 3.14,
    so there must be none: the header readers took off whatever Pillow warns about.
    """
    image = _DECODERS[encoded.format](BytesIO(encoded.data))
    if image.size != (encoded.width, encoded.height):
        raise FormatError(
            f"its header can be read as {encoded.width}x{encoded.height} and as {image.width}x{image.height}"
        )
    if encoded.format == "TIFF":
        # Memory that is there already is not allocated again, and the allocation is where TIFF warns about its size.
        image.im = Image.new(image.mode, image.size).im
    image.decodermaxblock = _READ_BYTES
    image.load()
    if encoded.format == "BMP" and image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0):
        # Programs declare alpha in a BMP and leave it 0; nobody saves a picture to be invisible.
        return image.convert("RGB")
    return image

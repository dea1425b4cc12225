"""Pictures from bytes, files, arrays and Pillow to upright 8-bit RGB.

1. `limits`       what a picture may weigh
2. `files`        a path to bytes: regular files only, size checked first
3. `header`       bytes to an `EncodedImage`: format, size, orientation; metadata taken off (`formats/`, a reader each)
4. `decoding`     an `EncodedImage` through Pillow's decoder of that format
5. `colour`       any pixels to RGB
6. `orientation`  upright
7. `sources`      `load_image`, which takes whatever the caller has
8. `gpu_jpeg`     ordinary JPEGs of an `EncodedImage` on an NVIDIA GPU, where its package is installed; never needed

Everything that can be wrong with a picture is an `ImageError` of one line that names it.
"""

from foveate.images.colour import to_rgb
from foveate.images.decoding import decode_encoded, decode_image
from foveate.images.encoded import EncodedImage
from foveate.images.gpu_jpeg import JpegDecoder, NvImageCodec
from foveate.images.header import read_header
from foveate.images.limits import DEFAULT_LIMITS, ImageLimits
from foveate.images.sources import ImageSource, load_image, read_source

__all__ = [
    "DEFAULT_LIMITS",
    "EncodedImage",
    "ImageLimits",
    "ImageSource",
    "JpegDecoder",
    "NvImageCodec",
    "decode_encoded",
    "decode_image",
    "load_image",
    "read_header",
    "read_source",
    "to_rgb",
]

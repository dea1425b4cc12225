"""Whatever a decoder raises over bad bytes, as one clear ImageError."""

from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from foveate.errors import ImageError, ImageSizeError, UnreadableImageError

__all__ = ["FormatError", "decoder_failures"]


class FormatError(Exception):
    """A header reader's own finding: the file is damaged, cut off, or of a kind that is not read.

    It carries the reason alone; `decoder_failures` adds the picture's name and raises the public error.
    """


@contextmanager
def decoder_failures(name: str, failure: str) -> Iterator[None]:
    """Turn every exception of the block into an ImageError whose message is one line about the picture `name`.

    The decoders' own words are left out of the message (they hold heap addresses) and kept as its cause. The net is
    wide on purpose: over hostile bytes Pillow raises OSError, SyntaxError, ValueError, TypeError, KeyError, EOFError,
    struct.error, zlib.error and more, and any of them means the same to the caller.

    Raises:
        ImageSizeError: The memory does not suffice, or Pillow's own bound (which the process may have lowered) is hit.
        UnreadableImageError: Anything else, with `failure` as what went wrong.
    """
    try:
        yield
    except ImageError:
        raise
    except FormatError as error:
        raise UnreadableImageError(f"{name}: {failure}: {error}") from None
    except MemoryError as error:
        raise ImageSizeError(
            f"{name}: there is not enough memory to decode it; send a smaller picture or lower ImageLimits.max_pixels"
        ) from error
    except Image.DecompressionBombError as error:
        raise ImageSizeError(
            f"{name}: it has more pixels than this process lets Pillow decode (PIL.Image.MAX_IMAGE_PIXELS, doubled)"
        ) from error
    except Exception as error:
        raise UnreadableImageError(f"{name}: {failure}") from error

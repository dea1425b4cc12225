"""What a picture may weigh before it is decoded."""

from dataclasses import dataclass, fields
from typing import Final

from foveate.errors import ConfigurationError, ImageSizeError, UnreadableImageError

__all__ = ["DEFAULT_LIMITS", "ImageLimits"]

_MOST_PIXELS: Final = 178_956_970
_MOST_BYTES: Final = 2**31 - 1


@dataclass(frozen=True)
class ImageLimits:
    """Bounds on one picture. They are checked on the file's size and header, before any pixel is decoded."""

    max_bytes: int = 64 * 2**20
    """The largest file, in bytes. 64 MiB holds a JPEG of any camera and 22 million pixels of an uncompressed one."""
    max_pixels: int = 2**27
    """The largest width times height, in pixels, at most 178,956,970 (where Pillow itself stops). 2**27 holds the shots
    of 108-megapixel phones. Decoding takes 4 bytes a pixel (RGB) to 20 (an animated WebP), 0.5 to 2.5 GiB at 2**27,
    for each picture that is decoded at the same time."""

    def __post_init__(self) -> None:
        bounds = {"max_bytes": _MOST_BYTES, "max_pixels": _MOST_PIXELS}
        for field in fields(self):
            value, most = getattr(self, field.name), bounds[field.name]
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigurationError(
                    f"ImageLimits.{field.name} is {value!r}; it has to be a whole number from 1 to {most:,}"
                )

    def check_bytes(self, size_bytes: int, name: str) -> None:
        """Raise ImageSizeError where the file `name` of `size_bytes` is too large, UnreadableImageError where empty."""
        if size_bytes == 0:
            raise UnreadableImageError(f"{name}: the file is empty (0 bytes)")
        if size_bytes > self.max_bytes:
            raise ImageSizeError(
                f"{name}: the file has {size_bytes:,} bytes, the limit is {self.max_bytes:,}; "
                "send a smaller file or raise ImageLimits.max_bytes"
            )

    def check_pixels(self, width: int, height: int, name: str) -> None:
        """Raise ImageSizeError where `width` x `height` pixels are too many, UnreadableImageError where none."""
        if width < 1 or height < 1:
            raise UnreadableImageError(f"{name}: the picture is {width}x{height} pixels; it needs at least 1x1")
        if width * height > self.max_pixels:
            raise ImageSizeError(
                f"{name}: the picture is {width}x{height}, {width * height:,} pixels, the limit is "
                f"{self.max_pixels:,}; send a smaller one or raise ImageLimits.max_pixels (at most {_MOST_PIXELS:,})"
            )


DEFAULT_LIMITS: Final = ImageLimits()
"""The limits where none are given."""

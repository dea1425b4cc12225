"""A picture file's bytes, read without trusting the path."""

import os
import stat
from typing import Final

from foveate.errors import ImageError, UnreadableImageError
from foveate.images.limits import ImageLimits

__all__ = ["picture_name", "read_picture_file"]

_LONGEST_NAME: Final = 80
# A pipe opened for reading waits for a writer unless told not to; Windows has no such flag, and needs the other.
_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def picture_name(path: str | bytes) -> str:
    """Return the file name in `path` for a message of one line: printable, at most 80 characters."""
    name = os.path.basename(os.fsdecode(path)) or os.fsdecode(path)
    name = "".join(character if character.isprintable() else "?" for character in name)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def read_picture_file(path: str | os.PathLike[str], limits: ImageLimits) -> bytes:
    """Return the bytes of the regular file at `path`.

    Its size is checked before it is read, and a pipe, a device or a folder is refused without waiting for it.

    Raises:
        UnreadableImageError: There is no such file, it may not be read, or it is not a regular file.
        ImageSizeError: It is larger than `limits.max_bytes`.
    """
    name = picture_name(os.fspath(path))
    try:
        _check_regular(os.stat(path).st_mode, name)
        with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            _check_regular(status.st_mode, name)  # Another file may have taken the name meanwhile.
            limits.check_bytes(status.st_size, name)
            return file.read(status.st_size)
    except FileNotFoundError:
        raise UnreadableImageError(f"{name}: there is no such file; check the path") from None
    except PermissionError:
        raise UnreadableImageError(f"{name}: the file may not be read; check its permissions") from None
    except OSError as error:
        raise UnreadableImageError(f"{name}: the file cannot be read ({error.strerror})") from error
    except ImageError:
        raise
    except ValueError as error:
        raise UnreadableImageError(f"{name}: the path holds a character that no path can hold") from error


def _check_regular(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise UnreadableImageError(f"{name}: it is a folder; give the path of one picture file")
    if not stat.S_ISREG(mode):
        raise UnreadableImageError(f"{name}: it is a pipe, socket or device; give the path of a regular file")

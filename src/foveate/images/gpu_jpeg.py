"""JPEG on an NVIDIA GPU: nvImageCodec, which interpolates chroma as Pillow's decoder does.

Only files that `EncodedImage.is_plain_jpeg` marks are meant for it. It is optional (the extra `cuda`), and whoever uses
it decodes again on the CPU whatever it does not give: nothing it says about a file is believed but its pixels.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol

from foveate.errors import MissingExtraError

__all__ = ["JpegDecoder", "NvImageCodec"]

_MOST_THREADS: Final = 8
# The card's own decoder alone. It is the fastest and within one level of Pillow, where the package's kernels are up to
# three off, and mixing them in would make a picture depend on its company. What it cannot decode, Pillow does.
_BACKENDS: Final = ("HW_GPU_ONLY",)
_OPTIONS: Final = ":fancy_upsampling=1"
_VERBOSITY: Final = "PYNVIMGCODEC_VERBOSITY"


class JpegDecoder(Protocol):
    """Whatever decodes JPEG files into the memory of a device."""

    name: str
    """What it is, for people."""

    def decode(self, files: Sequence[bytes], stream: int) -> Sequence[Any]:
        """Decode files on the CUDA stream of that address, which need not be waited for.

        Returns, for each file, `[height, width, 3]` uint8 RGB pixels on the device, as stored, as an object with
        `__dlpack__`; or None where it was not decoded.
        """


class NvImageCodec:
    """nvImageCodec on one device. One call at a time; safe to use from several threads."""

    def __init__(self, device_index: int, *, backends: Sequence[str] = _BACKENDS, options: str = _OPTIONS) -> None:
        """Set up the decoder of CUDA device `device_index`.

        `backends` names members of nvImageCodec's BackendKind and `options` is its string of decoder options.

        Raises:
            MissingExtraError: The package is not installed, or cannot be used here.
        """
        codec = _import()
        self.name = f"nvImageCodec {codec.__version__}"
        self._codec, self._lock = codec, threading.Lock()
        try:
            self._params = codec.DecodeParams(
                apply_exif_orientation=False, color_spec=codec.ColorSpec.SRGB, allow_any_depth=False
            )
            self._decoder = codec.Decoder(
                device_id=device_index,
                max_num_cpu_threads=min(_MOST_THREADS, os.cpu_count() or 1),
                backends=[codec.Backend(getattr(codec.BackendKind, backend)) for backend in backends],
                options=options,
            )
        except Exception as error:
            raise MissingExtraError(
                f"{self.name} cannot decode on cuda:{device_index} ({type(error).__name__}); "
                "install its parts with: pip install --upgrade 'foveate[cuda]'"
            ) from error

    def decode(self, files: Sequence[bytes], stream: int) -> Sequence[Any]:
        """Decode files; see `JpegDecoder`."""
        streams = [self._codec.CodeStream(file) for file in files]
        with self._lock:
            return list(self._decoder.decode(streams, params=self._params, cuda_stream=stream))


def _import() -> ModuleType:
    try:
        with _silence():
            return import_module("nvidia.nvimgcodec")
    except ImportError as error:
        raise MissingExtraError(
            "decoding JPEG on the GPU needs the package nvimgcodec, which is not installed or cannot be loaded; "
            "install it with: pip install 'foveate[cuda]'"
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what the library says in its first moment, and about every bad file ever after, off standard error.

    While it is imported it reads how much it is to say from the environment, and complains, whatever stands there,
    about the parts for JPEG 2000 and TIFF, which are not wanted.
    """
    before = os.environ.get(_VERBOSITY)
    os.environ[_VERBOSITY] = before or "0"
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        if before is None:
            del os.environ[_VERBOSITY]

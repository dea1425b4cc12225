"""JPEG on an NVIDIA GPU: nvImageCodec, which interpolates chroma as Pillow's decoder does.

Only files that `EncodedImage.is_plain_jpeg` marks are meant for it. It is optional (the extra `cuda`), and whoever uses
it decodes again on the CPU whatever it does not give: nothing it says about a file is believed but its pixels.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(eq=False)
class _Wanted:
    """Files that one thread waits for."""

    files: Sequence[bytes]
    stream: int
    decoded: Sequence[Any] | None = None
    error: Exception | None = None


class NvImageCodec:
    """nvImageCodec on one device. Safe to use from several threads.

    One call at a time: who gets the turn decodes for all who wait with the same stream, as the card has several
    engines, and a call takes about as long for a few files as for one.
    """

    def __init__(self, device_index: int, *, backends: Sequence[str] = _BACKENDS, options: str = _OPTIONS) -> None:
        """Set up the decoder of CUDA device `device_index`.

        `backends` names members of nvImageCodec's BackendKind and `options` is its string of decoder options.

        Raises:
            MissingExtraError: The package is not installed, or cannot be used here.
        """
        codec = _import()
        self.name = f"nvImageCodec {codec.__version__}"
        self._codec, self._turn = codec, threading.Lock()
        self._waiting: list[_Wanted] = []
        self._waiting_lock = threading.Lock()
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
        wanted = _Wanted(files, stream)
        with self._waiting_lock:
            self._waiting.append(wanted)
        with self._turn:
            if wanted.decoded is None and wanted.error is None:
                self._decode_for(self._take(stream))
        if wanted.error is not None:
            raise wanted.error
        return wanted.decoded or []

    def _take(self, stream: int) -> list[_Wanted]:
        """Return all who wait with this stream, and let the others wait on."""
        with self._waiting_lock:
            taken = [each for each in self._waiting if each.stream == stream]
            self._waiting = [each for each in self._waiting if each.stream != stream]
        return taken

    def _decode_for(self, all_wanted: Sequence[_Wanted]) -> None:
        """Decode the files of several threads in one call; each one's by themselves where that fails."""
        try:
            decoded = iter(self._decode([file for each in all_wanted for file in each.files], all_wanted[0].stream))
            for each in all_wanted:
                each.decoded = [next(decoded) for _ in each.files]
        except Exception as error:
            if len(all_wanted) == 1:
                all_wanted[0].error = error
                return
            for each in all_wanted:
                self._decode_for([each])

    def _decode(self, files: Sequence[bytes], stream: int) -> Sequence[Any]:
        streams = [self._codec.CodeStream(file) for file in files]
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

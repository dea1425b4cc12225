"""Pictures → patches on a device: JPEGs are decoded there, the others on a few threads, and no float crosses the bus.

A picture takes the CPU's way wherever the GPU's could differ in its answer: limits and header come first, the same for
all; only ordinary JPEGs are given to the device (see `foveate.images.formats.jpeg_kinds`); and whatever its decoder
does not give, for any reason, Pillow decodes, or says why not.
"""

import logging
import threading
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeGuard

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from foveate.errors import ImageError
from foveate.images import (
    EncodedImage,
    ImageLimits,
    ImageSource,
    JpegDecoder,
    decode_encoded,
    load_image,
    read_source,
)
from foveate.models.lfm2_vl.device_pixels import DevicePixels
from foveate.models.lfm2_vl.image_patches import ImagePatches
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pictures import orient

logger = logging.getLogger(__name__)

MOST_DEVICE_PIXELS: Final = 2**25
"""Larger pictures are decoded and resized on the host: on the device each would take 15 bytes a pixel for a moment, at
this bound half a gigabyte."""

MOST_SHARED: Final = 8
"""Requests whose pictures share a call of the GPU's JPEG decoder."""

_Opened: TypeAlias = EncodedImage | ImageSource | ImageError
_Job: TypeAlias = Tensor | Future[Tensor] | ImageError


class DevicePictures:
    """Decodes onto one device and cuts there. Safe to use from several threads.

    Invariant: at most `threads` pictures are decoded on the CPU at a time, whoever asks.
    """

    def __init__(
        self,
        settings: ImageSettings,
        limits: ImageLimits,
        device: torch.device,
        dtype: torch.dtype,
        *,
        decoder: JpegDecoder | None = None,
        threads: int = 4,
    ) -> None:
        """Set up. Patches come in `dtype`; without a `decoder` all is decoded on the CPU."""
        self.limits, self.decoder = limits, decoder
        # The GPU's decoder takes about as long for a few files as for one, and Python's other threads wait meanwhile.
        self.most_at_once = MOST_SHARED if decoder else 1
        self.counts: Counter[str] = Counter()
        """Pictures by how they were decoded: `gpu`, `cpu`, or `fallback`: by the CPU, as the GPU had failed."""
        self._device = device
        self._pixels = DevicePixels(settings, device, dtype)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="foveate-decode")
        self._lock = threading.Lock()

    def decode(self, sources: Sequence[ImageSource]) -> list[Tensor]:
        """Return `[height, width, 3]` uint8 RGB pixels of each picture, upright, on the device.

        Those above `MOST_DEVICE_PIXELS` stay on the host. The device need not be done when this returns: its work is
        on the current stream.

        Raises the ImageError of the first picture that cannot be used, as if they were decoded one after another.
        """
        opened = self._open(sources)
        for_gpu = {index: each for index, each in enumerate(opened) if self._is_for_gpu(each)}
        # The CPU's part begins first, so that both work at the same time.
        jobs = {index: self._begin(each) for index, each in enumerate(opened) if index not in for_gpu}
        with _cancelled_on_error(jobs):
            for (index, file), pixels in zip(for_gpu.items(), self._decode_jpegs(list(for_gpu.values())), strict=True):
                jobs[index] = self._begin(file) if pixels is None else pixels
            self._count(jobs, for_gpu)
            return [self._finish(jobs[index]) for index in range(len(opened))]

    def patches(self, pictures: Sequence[Tensor]) -> list[ImagePatches]:
        """Cut pictures; the patches are on the device, in the type of the encoder."""
        return [self._pixels.patches(picture) for picture in pictures]

    def _open(self, sources: Sequence[ImageSource]) -> list[_Opened]:
        """Read headers, up to the first that is refused: what comes after it is not looked at."""
        opened: list[_Opened] = []
        for source in sources:
            try:
                opened.append(read_source(source, self.limits) or source)
            except ImageError as error:
                return [*opened, error]
        return opened

    def _is_for_gpu(self, opened: _Opened) -> TypeGuard[EncodedImage]:
        if self.decoder is None or not isinstance(opened, EncodedImage) or not opened.is_plain_jpeg:
            return False
        return opened.width * opened.height <= MOST_DEVICE_PIXELS

    def _begin(self, opened: _Opened) -> _Job:
        return opened if isinstance(opened, ImageError) else self._pool.submit(self._decode_on_host, opened)

    def _decode_on_host(self, opened: EncodedImage | ImageSource) -> Tensor:
        """Return pixels on the host, page-locked where they are to be copied to a GPU."""
        image = decode_encoded(opened) if isinstance(opened, EncodedImage) else load_image(opened, self.limits)
        is_pinned = self._device.type == "cuda" and image.width * image.height <= MOST_DEVICE_PIXELS
        return _host_pixels(image, pin_memory=is_pinned)

    def _decode_jpegs(self, files: Sequence[EncodedImage]) -> list[Tensor | None]:
        """Decode on the device; None where that failed, in whatever way."""
        if not files or self.decoder is None:
            return []
        stream = torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0
        try:
            decoded = self.decoder.decode([file.data for file in files], stream)
            return [_upright(pixels, file) for pixels, file in zip(decoded, files, strict=True)]
        except Exception as error:
            logger.warning("%s failed and the CPU takes over: %s", self.decoder.name, type(error).__name__)
            return [None] * len(files)

    def _finish(self, job: _Job) -> Tensor:
        if isinstance(job, ImageError):
            raise job
        pixels = job.result() if isinstance(job, Future) else job
        is_large = pixels.shape[0] * pixels.shape[1] > MOST_DEVICE_PIXELS
        return pixels if is_large else pixels.to(self._device, non_blocking=True)

    def _count(self, jobs: Mapping[int, _Job], for_gpu: Container[int]) -> None:
        with self._lock:
            for index, job in jobs.items():
                if not isinstance(job, ImageError):
                    self.counts["gpu" if isinstance(job, Tensor) else "fallback" if index in for_gpu else "cpu"] += 1


@contextmanager
def _cancelled_on_error(jobs: Mapping[int, _Job]) -> Iterator[None]:
    """Take back what has not begun yet when the block fails: its result would be for nobody."""
    try:
        yield
    except BaseException:
        for job in jobs.values():
            if isinstance(job, Future):
                job.cancel()
        raise


def _host_pixels(image: Image.Image, *, pin_memory: bool) -> Tensor:
    pixels = torch.empty(image.height, image.width, 3, dtype=torch.uint8, pin_memory=pin_memory)
    pixels.numpy()[...] = np.asarray(image)
    return pixels


def _upright(decoded: object, file: EncodedImage) -> Tensor | None:
    """Return what a decoder made of a file, upright; None where it is not what was asked for."""
    if decoded is None:
        return None
    pixels: Tensor = torch.utils.dlpack.from_dlpack(decoded)
    if pixels.dtype != torch.uint8 or pixels.shape != (file.height, file.width, 3):
        return None
    return orient(pixels, file.orientation)

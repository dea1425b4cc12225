"""Features of pictures that were encoded before, should the same picture come again."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from foveate.images import EncodedImage, ImageLimits, ImageSource, load_image, read_source
from foveate.models.lfm2_vl.tiles import TileGrid


@dataclass(frozen=True)
class ImageFeatures:
    """A picture as the language model sees it."""

    grid: TileGrid
    """How it was cut."""
    rows: Tensor
    """`[image tokens, hidden_size]`"""


class ImageCache:
    """Keeps the features used last, up to a number of bytes. Safe to use from several threads."""

    def __init__(self, max_bytes: int) -> None:
        """0 bytes keep nothing."""
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> ImageFeatures | None:
        """Return the features of a picture, or None; counts either."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
                self._entries.move_to_end(key)
            return found

    def put(self, key: bytes, features: ImageFeatures) -> None:
        """Keep the features of a picture, and drop those not used for longest; larger ones than all room are not kept.

        The rows are copied: they are a part of what the encoder made of a whole batch.
        """
        size = features.rows.numel() * features.rows.element_size()
        with self._lock:
            if size > self.max_bytes or key in self._entries:
                return
            self._entries[key] = ImageFeatures(features.grid, features.rows.clone())
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self.num_bytes -= dropped.rows.numel() * dropped.rows.element_size()


def identified(source: ImageSource, limits: ImageLimits, options: bytes) -> tuple[bytes, ImageSource]:
    """Return a key of a picture, and the picture as it is to be decoded, so that it is not read twice.

    The key is a digest of all bytes that decide its pixels, and of `options`, which are all else that decides its
    features. Raises ImageError on a picture whose header is refused.
    """
    digest = hashlib.blake2b(options, digest_size=32)
    file = read_source(source, limits)
    if isinstance(file, EncodedImage):
        digest.update(f"file {file.format} {file.width} {file.height} {file.orientation} ".encode())
        digest.update(file.data)
        return digest.digest(), file
    pixels = np.asarray(load_image(source, limits))
    digest.update(f"pixels {pixels.shape} ".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest(), pixels

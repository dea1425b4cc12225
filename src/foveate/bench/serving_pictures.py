"""Pictures to be asked about, as the bytes of files."""

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from foveate.errors import ConfigurationError
from foveate.images import load_image

DIFFERENT = 8
"""Drawn pictures of each size; after those they come again. No features are kept, so that saves nobody work."""
QUALITY, GRAIN = 92, 4.0
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@cache
def drawn_jpegs(width: int, height: int) -> tuple[bytes, ...]:
    """Return JPEGs with 4:2:0 chroma, of soft clouds of colour under a film's grain: as many bytes as a photograph."""
    return tuple(_jpeg(width, height, seed) for seed in range(DIFFERENT))


def _jpeg(width: int, height: int, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    clouds = Image.fromarray(random.integers(0, 256, (9, 16, 3), dtype=np.uint8))
    soft = np.asarray(clouds.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
    pixels = soft + random.normal(0, GRAIN, (height, width, 1))
    file = io.BytesIO()
    Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY, subsampling=2)
    return file.getvalue()


def pictures_in(folder: Path) -> tuple[bytes, ...]:
    """Return the files of a folder that are called like pictures, by name.

    Raises ConfigurationError if there are none, and the ImageError of the first that cannot be used.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder; give one that holds pictures")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise ConfigurationError(
            f"{folder} holds no picture; give a folder with files such as {', '.join(SUFFIXES[:4])}"
        )
    for path in files:
        load_image(path)  # so that an error names the file
    return tuple(path.read_bytes() for path in files)

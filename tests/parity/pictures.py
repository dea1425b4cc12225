"""Pictures and conversations that the parity tests share."""

from typing import Any

import numpy as np
from PIL import Image

# Width x height, each with the number of image tokens that the reference gives with its class's own settings.
SIZES = {
    (1, 1): 64,
    (3, 1): 70,
    (22, 3): 66,
    (512, 14): 98,
    (500, 19): 84,
    (512, 64): 69,
    (1024, 128): 128,
    (512, 512): 256,
    (720, 720): 256,
    (721, 721): 1280,
    (1024, 512): 242,
    (1024, 529): 754,
    (1280, 720): 764,
    (1376, 768): 2279,
    (768, 1376): 2279,
    (1920, 1080): 2300,
    (1786, 2526): 1783,
    (2048, 2048): 2560,
    (4096, 4096): 2560,
    (3022, 1644): 2279,
    (8192, 16): 256,
}


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Noise, so that every pixel counts."""
    generator = np.random.default_rng([seed, width, height])
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def shown(image: Image.Image) -> dict[str, Any]:
    """The part of a message that shows a picture."""
    return {"type": "image", "image": image}


def said(text: str) -> dict[str, Any]:
    """The part of a message that says something."""
    return {"type": "text", "text": text}


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    """A user's message; a lone text is given as a text."""
    if len(parts) == 1 and isinstance(parts[0], str):
        return {"role": "user", "content": parts[0]}
    return {"role": "user", "content": [said(part) if isinstance(part, str) else part for part in parts]}


def random_sizes(count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Widths and heights whose logarithms are spread evenly: small, large, square and thin."""
    generator = np.random.default_rng(seed)
    areas = np.exp(generator.uniform(np.log(100), np.log(1.5e6), count))
    shapes = np.exp(generator.normal(0, 0.8, count))
    return [
        (max(1, round((area * shape) ** 0.5)), max(1, round((area / shape) ** 0.5)))
        for area, shape in zip(areas, shapes, strict=True)
    ]

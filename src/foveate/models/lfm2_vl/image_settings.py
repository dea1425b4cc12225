"""How a checkpoint wants pictures cut: its own processor files first, then config.json, then the reference's defaults.

Two layouts are in use: `processor_config.json` with the settings under `image_processor` (LFM2.5-VL), and a flat
`processor_config.json` beside `preprocessor_config.json` (first LFM2-VL). A checkpoint's file always wins over a
class default: they differ in `min_tiles`, `use_thumbnail` and `resample`.
"""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from PIL.Image import Resampling

from foveate.errors import CheckpointError
from foveate.models.json_files import read_optional_json

_SPELLINGS = {"patch_size": "encoder_patch_size"}

MOST_TILES = 100
"""There are markers for ten rows and ten columns."""
MOST_TILE_PATCHES = 65_536
"""A tile of 4096x4096 pixels: attention within one is quadratic, and larger ones are a slip of the pen."""


@dataclass(frozen=True)
class ImageSettings:
    """The numbers that decide tiles and pixels; defaults are those of the reference's image processor class."""

    patch_size: int = 16
    """Side of a patch, in pixels."""
    downsample_factor: int = 2
    """Side of the block of patches that becomes one image token."""
    tile_size: int = 512
    """Side of a tile of a split picture, in pixels."""
    do_image_splitting: bool = True
    """Whether large pictures are split into tiles at all."""
    min_tiles: int = 2
    """Fewest tiles of a split picture, without the thumbnail."""
    max_tiles: int = 10
    """Most tiles of a split picture, without the thumbnail."""
    use_thumbnail: bool = True
    """Whether a split picture is followed by a small whole one."""
    min_image_tokens: int = 64
    """Fewest image tokens of a single tile or thumbnail."""
    max_image_tokens: int = 256
    """Most image tokens of a single tile or thumbnail."""
    max_pixels_tolerance: float = 2.0
    """A picture is split from this many times `max_image_tokens` on."""
    resample: int = int(Resampling.BILINEAR)
    """PIL's number of the resampling filter."""
    rescale_factor: float = 1 / 255
    """What a pixel value is multiplied by before it is normalised."""
    image_mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Mean per channel, after rescaling."""
    image_std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Standard deviation per channel, after rescaling."""
    use_image_special_tokens: bool = True
    """Whether start, end, tile and thumbnail markers stand around the placeholders."""

    def __post_init__(self) -> None:
        self._check_types()
        self._check_positive()
        if self.tile_size % self.block_pixels:
            raise CheckpointError(f"tile_size is {self.tile_size}; it must be a multiple of {self.block_pixels} pixels")
        if not 1 <= self.min_tiles <= self.max_tiles <= MOST_TILES:
            raise CheckpointError(
                f"min_tiles is {self.min_tiles}, max_tiles {self.max_tiles}; 1 <= min <= max <= {MOST_TILES} must hold"
            )
        if self.longest_tile_patches > MOST_TILE_PATCHES:
            raise CheckpointError(
                f"tile_size {self.tile_size} and max_image_tokens {self.max_image_tokens} make tiles of"
                f" {self.longest_tile_patches} patches; at most {MOST_TILE_PATCHES} are encoded"
            )
        if not 1 <= self.min_image_tokens <= self.max_image_tokens:
            raise CheckpointError(
                f"min_image_tokens is {self.min_image_tokens}, max_image_tokens {self.max_image_tokens};"
                " 1 <= min <= max must hold"
            )
        if self.resample not in (Resampling.NEAREST, Resampling.BILINEAR, Resampling.BICUBIC):
            raise CheckpointError(
                f"resample is {self.resample}; Foveate resizes with 0 nearest, 2 bilinear or 3 bicubic"
            )

    def _check_types(self) -> None:
        for field in fields(self):
            value, usual = getattr(self, field.name), field.default
            if not _is_like(value, usual):
                raise CheckpointError(f"{field.name} is {value!r}; it must be of the kind of {usual!r}")

    def _check_positive(self) -> None:
        sizes = ("patch_size", "downsample_factor", "tile_size")
        for name in (*sizes, "max_pixels_tolerance", "rescale_factor", "image_std"):
            value = getattr(self, name)
            if min(value if isinstance(value, tuple) else (value,)) <= 0:
                raise CheckpointError(f"{name} is {value}; it must be above 0")

    @property
    def block_pixels(self) -> int:
        """Side, in pixels, of the square that becomes one image token."""
        return self.patch_size * self.downsample_factor

    @property
    def tile_bounds(self) -> tuple[int, int]:
        """Fewest and most tiles, with splitting switched off counted in."""
        return (self.min_tiles, self.max_tiles) if self.do_image_splitting else (1, 1)

    @property
    def longest_tile_patches(self) -> int:
        """The most patches one tile can have."""
        side = self.tile_size // self.patch_size if self.do_image_splitting else 0
        return max(self.max_image_tokens * self.downsample_factor**2, side * side)


def read_image_settings(folder: Path, model_config: dict[str, Any]) -> ImageSettings:
    """Read the settings of the checkpoint in `folder`; raises CheckpointError on values that do not fit together."""
    files = [folder / name for name in ("preprocessor_config.json", "processor_config.json")]
    if not any(file.exists() for file in files):
        raise CheckpointError(f"{folder} has no {' and no '.join(file.name for file in files)}: it is not complete")
    layers = [model_config, *(read_optional_json(file) for file in files)]
    nested = layers[-1].get("image_processor") or {}
    if not isinstance(nested, dict):
        raise CheckpointError(
            f"{folder / 'processor_config.json'}: image_processor is {nested!r}; it must be an object"
        )
    layers.append(nested)
    for key in ("do_rescale", "do_normalize"):
        if any(layer.get(key) is False for layer in layers[1:]):
            raise CheckpointError(f"{folder}: {key} is false in its processor files; Foveate always does it")
    values: dict[str, Any] = {}
    for field in fields(ImageSettings):
        key = _SPELLINGS.get(field.name, field.name)
        found = [layer[key] for layer in layers if layer.get(key) is not None]
        if found:
            values[field.name] = tuple(found[-1]) if isinstance(found[-1], list) else found[-1]
    try:
        return ImageSettings(**values)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: in its processor files or config.json, {error}") from error


def _is_like(value: Any, usual: Any) -> bool:
    """Whether a value from a file is of the type of `usual`; a whole number does where a number is wanted."""
    if isinstance(usual, tuple):
        return isinstance(value, tuple) and len(value) == len(usual) and all(map(_is_like, value, usual))
    if isinstance(usual, float):
        return type(value) in (int, float) and abs(value) < math.inf
    return type(value) is type(usual)

"""What lies behind the figures and the letters: flat, patterned and photographed grounds of two near colours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from PIL import Image, ImageChops

from foveate.evaluation.drawing.colours import Rgb, distance
from foveate.evaluation.resources import photographs
from foveate.evaluation.splits import Split

__all__ = ["Ground", "add_noise", "choose_ground", "paint_ground"]

Size = tuple[int, int]

_TRIES: Final = 12
_FAR_ENOUGH: Final = 95.0
_NOISE_SIDE_PIXELS: Final = 768


@dataclass(frozen=True)
class Ground:
    """A pattern between two colours: every pixel of it is a mixture of them."""

    first: Rgb
    second: Rgb

    @property
    def colours(self) -> tuple[Rgb, Rgb]:
        """Both colours."""
        return self.first, self.second

    def distance_to(self, colour: Rgb) -> float:
        """Return the least distance of `colour`, in levels, from the ends and the middle of the ground's range."""
        red, green, blue = ((a + b) // 2 for a, b in zip(self.first, self.second, strict=True))
        return min(distance(colour, point) for point in (self.first, (red, green, blue), self.second))


def choose_ground(random: Random, away_from: Sequence[Rgb] = ()) -> Ground:
    """Return a ground of greyish colours, from which each colour of `away_from` stands out as far as can be."""
    best, farthest = _any_ground(random), -1.0
    for _ in range(_TRIES):
        ground = _any_ground(random)
        least = min((ground.distance_to(colour) for colour in away_from), default=_FAR_ENOUGH)
        if least > farthest:
            best, farthest = ground, least
        if farthest >= _FAR_ENOUGH:
            break
    return best


def paint_ground(random: Random, split: Split, ground: Ground, size: Size) -> Image.Image:
    """Return an RGB picture of `size`, (width, height) in pixels, filled with a pattern in the ground's colours."""
    if ground.first == ground.second:
        return Image.new("RGB", size, ground.first)
    pattern = random.choice(_PATTERNS)(random, split, size)
    channels = [
        pattern.point([first + (second - first) * level // 255 for level in range(256)])
        for first, second in zip(ground.first, ground.second, strict=True)
    ]
    return Image.merge("RGB", channels)


def add_noise(random: Random, image: Image.Image, strength: int) -> Image.Image:
    """Return the picture with each level moved by at most `strength`. Neither side may exceed 512 pixels."""
    if strength == 0:
        return image
    spare = _NOISE_SIDE_PIXELS - max(image.size)
    left, top = random.randint(0, spare), random.randint(0, spare)
    noise = _noise(strength).crop((left, top, left + image.width, top + image.height))
    return ImageChops.add(image, noise, 1, -128)


def _any_ground(random: Random) -> Ground:
    grey = random.choice((random.randint(20, 245), random.randint(20, 245), random.randint(230, 255)))
    spread, tint = random.choice((0, 15, 30, 45)), random.choice((0, 6, 14))
    first = [grey + random.randint(-tint, tint) for _ in range(3)]
    towards = -spread if grey > 128 else spread
    second = [level + towards + random.randint(-tint, tint) * (spread > 0) for level in first]
    return Ground(_clipped(first), _clipped(second if spread else first))


def _clipped(levels: Sequence[int]) -> Rgb:
    red, green, blue = (min(255, max(0, level)) for level in levels)
    return red, green, blue


def _gradient(random: Random, _split: Split, size: Size) -> Image.Image:
    make = random.choice((Image.linear_gradient, Image.radial_gradient))
    turn = random.choice((Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.TRANSPOSE))
    return make("L").transpose(turn).resize(size, Image.Resampling.BILINEAR)


def _clouds(random: Random, _split: Split, size: Size) -> Image.Image:
    columns, rows = random.randint(3, 12), random.randint(3, 12)
    return Image.frombytes("L", (columns, rows), random.randbytes(columns * rows)).resize(
        size, Image.Resampling.BILINEAR
    )


def _grain(random: Random, _split: Split, size: Size) -> Image.Image:
    coarse = random.choice((1, 2, 3))
    columns, rows = -(-size[0] // coarse), -(-size[1] // coarse)
    return Image.frombytes("L", (columns, rows), random.randbytes(columns * rows)).resize(
        size, Image.Resampling.BILINEAR
    )


def _stripes(random: Random, _split: Split, size: Size) -> Image.Image:
    count = random.randint(6, 40)
    shape = random.choice(((count, 1), (1, count)))
    return Image.frombytes("L", shape, bytes(255 * (at % 2) for at in range(count))).resize(
        size, Image.Resampling.NEAREST
    )


def _photograph(random: Random, split: Split, size: Size) -> Image.Image:
    photograph = random.choice(photographs(split))
    width, height = (random.randint(photograph.width // 3, photograph.width) for _ in range(2))
    left, top = random.randint(0, photograph.width - width), random.randint(0, photograph.height - height)
    return photograph.resize(size, Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))


_PATTERNS: Final[tuple[Callable[[Random, Split, Size], Image.Image], ...]] = (
    _gradient,
    _clouds,
    _grain,
    _stripes,
    _photograph,
    _photograph,
    _photograph,
)
"""None of them has circles or squares of its own, which would be counted."""


@cache
def _noise(strength: int) -> Image.Image:
    """Return the sheet of even noise, 768x768 RGB, 128 being no change; pieces of it are added to pictures."""
    side = _NOISE_SIDE_PIXELS
    sheet = Image.frombytes("RGB", (side, side), Random("noise").randbytes(3 * side * side))
    return sheet.point([128 + round((level - 127.5) / 127.5 * strength) for level in range(256)] * 3)

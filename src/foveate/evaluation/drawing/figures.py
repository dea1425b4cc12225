"""The eight shapes, each inside the circle that its size names."""

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Final

from PIL import Image, ImageDraw

__all__ = ["ALIKE", "SHAPES", "area_of", "figure_mask", "natural_turn"]

Points = tuple[tuple[float, float], ...]
"""Corners, x to the right and y down, inside the circle of radius 1 around 0."""

_FINER: Final = 3
"""Masks are drawn this many times as large and averaged down, which smooths their edges."""


def _ngon(radii: Sequence[float]) -> Points:
    """Return corners around the centre at equal angles, the first straight up."""
    step = 2 * math.pi / len(radii)
    return tuple((radius * math.sin(at * step), -radius * math.cos(at * step)) for at, radius in enumerate(radii))


def _cross(half_width: float) -> Points:
    wide = (1 - half_width**2) ** 0.5
    corners = [(-half_width, -wide), (half_width, -wide), (half_width, -half_width)]
    for _ in range(3):
        corners += [(-y, x) for x, y in corners[-3:]]
    return tuple(corners)


def _heart() -> Points:
    def point(angle: float) -> tuple[float, float]:
        x = 16 * math.sin(angle) ** 3
        y = 13 * math.cos(angle) - 5 * math.cos(2 * angle) - 2 * math.cos(3 * angle) - math.cos(4 * angle)
        return x / 17.5, (-y - 2.6) / 17.5

    return tuple(point(2 * math.pi * at / 40) for at in range(40))


_OUTLINES: Final[dict[str, Points]] = {
    "square": tuple((x * 0.705, y * 0.705) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))),
    "triangle": _ngon((1, 1, 1)),
    "star": _ngon((1, 0.42) * 5),
    "cross": _cross(0.3),
    "heart": _heart(),
    "arrow": ((-1, -0.22), (0.05, -0.22), (0.05, -0.68), (1, 0), (0.05, 0.68), (0.05, 0.22), (-0.97, 0.22)),
}
_HOLE: Final = {"circle": 0.0, "ring": 0.58}
"""The radius of the hole of the round shapes."""
_TURN_DEGREES: Final = {"square": 12, "triangle": 14, "star": 18, "cross": 12, "heart": 14, "arrow": 180}

SHAPES: Final = ("circle", "square", "triangle", "star", "cross", "heart", "ring", "arrow")
ALIKE: Final = frozenset({"circle", "ring"})
"""Shapes of which no picture shows both, since some people count a ring as a circle."""


def natural_turn(random: Random, shape: str) -> int:
    """Return an angle in degrees by which the shape can be turned and still be named the same."""
    most = _TURN_DEGREES.get(shape, 0)
    return random.randint(-most, most)


@cache
def area_of(shape: str) -> float:
    """Return the area within the outer edge, where the circle around the shape has radius 1."""
    if shape in _HOLE:
        return math.pi
    corners = _OUTLINES[shape]
    pairs = zip(corners, (*corners[1:], corners[0]), strict=True)
    return abs(sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in pairs)) / 2


def figure_mask(shape: str, size_pixels: int, turn_degrees: int) -> Image.Image:
    """Return the shape as an L mask of size_pixels x size_pixels, which it touches where it is round."""
    side = size_pixels * _FINER
    mask = Image.new("L", (side, side))
    draw = ImageDraw.Draw(mask)
    centre = side / 2
    if shape in _HOLE:
        draw.ellipse((0, 0, side - 1, side - 1), fill=255)
        hole = centre * _HOLE[shape]
        if hole:
            draw.ellipse((centre - hole, centre - hole, centre + hole, centre + hole), fill=0)
    else:
        turn = math.radians(turn_degrees)
        cosine, sine = math.cos(turn) * centre, math.sin(turn) * centre
        draw.polygon(
            [(centre + x * cosine - y * sine, centre + x * sine + y * cosine) for x, y in _OUTLINES[shape]], fill=255
        )
    return mask.reduce(_FINER)

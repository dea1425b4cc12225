"""Named colours, and how far two of them are apart."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

__all__ = ["COLOURS", "Rgb", "contrast_ratio", "distance", "relative_luminance", "varied"]

Rgb = tuple[int, int, int]
"""Red, green and blue, each 0 to 255."""

COLOURS: Final[dict[str, Rgb]] = {
    "red": (215, 35, 40),
    "orange": (245, 135, 25),
    "yellow": (248, 215, 45),
    "green": (45, 155, 60),
    "blue": (40, 85, 215),
    "purple": (135, 55, 170),
    "pink": (250, 150, 195),
    "brown": (120, 72, 35),
    "black": (20, 20, 22),
    "white": (250, 250, 250),
}
"""Ten colours that a person names at a glance. Grey is none of them: it is the colour of grounds."""


def varied(random: Random, colour: Rgb, by: int = 10) -> Rgb:
    """Return a colour near `colour`: each channel at most `by` levels away."""
    red, green, blue = (min(255, max(0, level + random.randint(-by, by))) for level in colour)
    return red, green, blue


def distance(first: Rgb, second: Rgb) -> float:
    """Return the Euclidean distance in levels, 0 to 442."""
    return math.dist(first, second)


def relative_luminance(colour: Rgb) -> float:
    """Return the luminance from 0 (black) to 1 (white) as WCAG 2 defines it."""
    red, green, blue = (_linear(level / 255) for level in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast_ratio(ink: Rgb, grounds: Sequence[Rgb]) -> float:
    """Return the least contrast of `ink`, 1 to 21 as WCAG 2 defines it, with any colour between those of `grounds`.

    Between means channel by channel, so the bound holds for every mixture of them. It is 1 where the ink's own
    luminance lies among theirs.
    """
    low, high = relative_luminance(_envelope(grounds, min)), relative_luminance(_envelope(grounds, max))
    own = relative_luminance(ink)
    if own > high:
        return (own + 0.05) / (high + 0.05)
    return (low + 0.05) / (own + 0.05) if own < low else 1.0


def _linear(level: float) -> float:
    return level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4


def _envelope(colours: Sequence[Rgb], extreme: Callable[[tuple[int, ...]], int]) -> Rgb:
    red, green, blue = (extreme(levels) for levels in zip(*colours, strict=True))
    return red, green, blue

"""Inks that can be read on a ground, and grounds for letters."""

from random import Random
from typing import Final

from foveate.evaluation.drawing.colours import Rgb, contrast_ratio
from foveate.evaluation.drawing.grounds import Ground, choose_ground

__all__ = ["LEAST_CONTRAST", "choose_ink", "choose_paper"]

LEAST_CONTRAST: Final = 3.0
"""The least ratio of luminances (WCAG 2) between letters and what is behind them: what WCAG asks of large text."""

_TRIES: Final = 8


def choose_ink(random: Random, ground: Ground) -> Rgb:
    """Return a colour whose contrast with every part of the ground is at least LEAST_CONTRAST; one in three is dark.

    Raises:
        ValueError: the ground goes from so dark to so light that no ink stands out from all of it.

    """
    levels = random.choice((256, 256, 60))
    for _ in range(_TRIES):
        ink = (random.randrange(levels), random.randrange(levels), random.randrange(levels))
        if contrast_ratio(ink, ground.colours) >= LEAST_CONTRAST:
            return ink
    best = max(((0, 0, 0), (255, 255, 255)), key=lambda ink: contrast_ratio(ink, ground.colours))
    if contrast_ratio(best, ground.colours) < LEAST_CONTRAST:
        raise ValueError(f"no ink has a contrast of {LEAST_CONTRAST} with all of the ground {ground}")
    return best


def choose_paper(random: Random) -> tuple[Ground, Rgb]:
    """Return a ground of any brightness with an ink that can be read on it."""
    while True:
        ground = choose_ground(random)
        if max(contrast_ratio(ink, ground.colours) for ink in ((0, 0, 0), (255, 255, 255))) >= LEAST_CONTRAST:
            return ground, choose_ink(random, ground)

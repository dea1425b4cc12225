"""Handwritten digits, enlarged and set in a row."""

from dataclasses import dataclass
from random import Random
from typing import Final

from PIL import Image, ImageOps

from foveate.evaluation.drawing.colours import Rgb
from foveate.evaluation.drawing.grounds import Ground, add_noise, paint_ground
from foveate.evaluation.drawing.inks import choose_paper
from foveate.evaluation.resources import digits
from foveate.evaluation.splits import Split

__all__ = ["Handwriting", "choose_handwriting", "paint_handwriting"]

_SIDES: Final = (48, 112)
_MARGINS: Final = (8, 40)
_WIDEST_PIXELS: Final = 430
"""What the digits of one number may take, gaps included."""


@dataclass(frozen=True)
class Handwriting:
    """A number in handwritten digits."""

    text: str
    """One to four digits; the first is 0 only where it is alone."""
    indices: tuple[int, ...]
    """Which of the pictures of each digit is used."""
    side_pixels: int
    """The side of each enlarged digit."""
    gap_pixels: int
    """Between two digits; negative where their empty margins overlap."""
    drops_pixels: tuple[int, ...]
    """How much lower than the highest digit each stands."""
    ink: Rgb
    ground: Ground
    noise: int
    """The most by which noise moves a level."""


def choose_handwriting(random: Random, split: Split, text: str) -> Handwriting:
    """Return a way to write the digits of `text`."""
    ground, ink = choose_paper(random)
    side = min(random.randint(*_SIDES), _WIDEST_PIXELS * 5 // (6 * len(text)))
    return Handwriting(
        text,
        tuple(random.randrange(len(digits(split)[int(digit)])) for digit in text),
        side,
        random.randint(-side // 10, side // 5),
        tuple(random.randint(0, side // 8) for _ in text),
        ink,
        ground,
        random.choice((0, 0, 5, 10)),
    )


def paint_handwriting(random: Random, split: Split, handwriting: Handwriting) -> Image.Image:
    """Return an RGB picture just large enough for the digits, at least 112 pixels a side, with a margin around them."""
    side, step = handwriting.side_pixels, handwriting.side_pixels + handwriting.gap_pixels
    mask = Image.new("L", (step * (len(handwriting.text) - 1) + side, side + max(handwriting.drops_pixels)))
    for at, (digit, index) in enumerate(zip(handwriting.text, handwriting.indices, strict=True)):
        mask.paste(255, (at * step, handwriting.drops_pixels[at]), _enlarged(digits(split)[int(digit)][index], side))
    left, top, right, bottom = (random.randint(*_MARGINS) for _ in range(4))
    size = (max(112, mask.width + left + right), max(112, mask.height + top + bottom))
    image = paint_ground(random, split, handwriting.ground, size)
    image.paste(handwriting.ink, (left, top), mask)
    return add_noise(random, image, handwriting.noise)


def _enlarged(digit: Image.Image, side_pixels: int) -> Image.Image:
    """Return a digit with an empty edge around it, enlarged, its strokes sharpened again."""
    framed = ImageOps.expand(digit, 1).resize((side_pixels, side_pixels), Image.Resampling.BICUBIC)
    return framed.point([min(255, max(0, 2 * level - 110)) for level in range(256)])

"""Letterings: one line of text, a little turned, on a ground."""

from dataclasses import dataclass
from random import Random
from typing import Final

from PIL import Image, ImageDraw, ImageFilter

from foveate.evaluation.drawing.colours import Rgb
from foveate.evaluation.drawing.grounds import Ground, add_noise, paint_ground
from foveate.evaluation.drawing.inks import choose_paper
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import Font, Typeface, load_font, typefaces

__all__ = ["Lettering", "choose_lettering", "lettering_mask", "paint_lettering"]

_SIZES: Final = (14, 48)
_SIDES: Final = (128, 512)
_MARGIN_PIXELS: Final = 8
_MOST_TURN_DEGREES: Final = 5.0


@dataclass(frozen=True)
class Lettering:
    """A line of text and how it is printed."""

    text: str
    typeface: Typeface
    bold: bool
    size_pixels: int
    """The font's size (its em), 14 to 48."""
    turn_degrees: float
    """Anticlockwise, -5 to 5."""
    ink: Rgb
    ground: Ground
    blur_pixels: float
    """The radius of the Gaussian that softens the picture."""
    noise: int
    """The most by which noise moves a level."""

    @property
    def font(self) -> Font:
        """The font at its size."""
        return load_font(self.typeface, self.bold, self.size_pixels)


def choose_lettering(random: Random, split: Split, text: str) -> Lettering:
    """Return a way to print `text`, at the largest size up to the drawn one at which it fits into 512 pixels."""
    ground, ink = choose_paper(random)
    typeface, bold, size = random.choice(typefaces(split)), random.random() < 0.3, random.randint(*_SIZES)
    room = _SIDES[1] - 4 * _MARGIN_PIXELS
    while size > _SIZES[0] and load_font(typeface, bold, size).getlength(text) > room:
        size -= 1
    turn = random.choice((0.0, random.uniform(-_MOST_TURN_DEGREES, _MOST_TURN_DEGREES)))
    blur = random.choice((0.0, 0.0, random.uniform(0.2, 0.6 if size < 24 else 1.0)))
    noise = random.choice((0, 0, 6, 12))
    return Lettering(text, typeface, bold, size, turn, ink, ground, blur, noise)


def lettering_mask(lettering: Lettering) -> Image.Image:
    """Return the turned text as an L mask, cut to the ink."""
    left, top, right, bottom = (round(edge) for edge in lettering.font.getbbox(lettering.text))
    mask = Image.new("L", (right - left + 4, bottom - top + 4))
    ImageDraw.Draw(mask).text((2 - left, 2 - top), lettering.text, fill=255, font=lettering.font)
    if lettering.turn_degrees:
        mask = mask.rotate(lettering.turn_degrees, Image.Resampling.BICUBIC, expand=True)
    return mask.crop(mask.getbbox())


def paint_lettering(random: Random, split: Split, lettering: Lettering) -> Image.Image:
    """Return an RGB picture, 128 to 512 pixels a side, with the text in it, 8 pixels or more from each edge."""
    mask = lettering_mask(lettering)
    least_width, least_height = (max(_SIDES[0], side + 2 * _MARGIN_PIXELS) for side in mask.size)
    size = (_side(random, least_width), _side(random, least_height))
    left, top = (
        random.randint(_MARGIN_PIXELS, side - used - _MARGIN_PIXELS) for side, used in zip(size, mask.size, strict=True)
    )
    image = paint_ground(random, split, lettering.ground, size)
    image.paste(lettering.ink, (left, top), mask)
    if lettering.blur_pixels:
        image = image.filter(ImageFilter.GaussianBlur(lettering.blur_pixels))
    return add_noise(random, image, lettering.noise)


def _side(random: Random, least: int) -> int:
    """Return a side of the picture in pixels: the text rarely drowns in it."""
    return random.randint(least, min(_SIDES[1], max(2 * least, 320)))

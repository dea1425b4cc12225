"""Sheets of paper: lines of text in one ink, at their places, with rules between them."""

from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

from foveate.evaluation.drawing.colours import Rgb
from foveate.evaluation.drawing.grounds import Ground
from foveate.evaluation.typefaces import Font, Typeface, load_font

__all__ = ["Rule", "Sheet", "Text", "choose_sheet_colours", "paint_sheet"]


@dataclass(frozen=True)
class Text:
    """A line of text in its place."""

    text: str
    left: int
    """Where it begins, in pixels."""
    top: int
    """The top of the line: ascenders begin a little below it, in pixels."""
    size_pixels: int
    """The font's size (its em)."""
    bold: bool = False


@dataclass(frozen=True)
class Rule:
    """A thin line, or the frame of a box."""

    box: tuple[int, int, int, int]
    """Left, top, right, bottom in pixels."""
    framed: bool = False


@dataclass(frozen=True)
class Sheet:
    """A page or a form."""

    width: int
    """In pixels."""
    height: int
    """In pixels."""
    paper: Ground
    ink: Rgb
    typeface: Typeface
    texts: tuple[Text, ...]
    rules: tuple[Rule, ...] = ()

    def font(self, text: Text) -> Font:
        """Return the font of one of its lines."""
        return load_font(self.typeface, text.bold, text.size_pixels)

    def box(self, text: Text) -> tuple[float, float, float, float]:
        """Return the left, top, right and bottom of the ink of one of its lines, in pixels."""
        left, top, right, bottom = self.font(text).getbbox(text.text)
        return text.left + left, text.top + top, text.left + right, text.top + bottom


def choose_sheet_colours(random: Random) -> tuple[Ground, Rgb]:
    """Return a light paper with a dark ink; one in ten is the other way round."""
    light, dark = random.randint(225, 255), random.randint(0, 70)
    tint, shade = (tuple(random.randint(0, 14) for _ in range(3)) for _ in range(2))
    paper: Rgb = (light - tint[0], light - tint[1], light - tint[2])
    ink: Rgb = (dark + shade[0], dark + shade[1], dark + shade[2])
    if random.random() < 0.1:
        paper, ink = ink, paper
    return Ground(paper, paper), ink


def paint_sheet(sheet: Sheet, paper: Image.Image | None = None) -> Image.Image:
    """Return the RGB picture of a sheet: on `paper`, which is drawn over, or on the first colour of its own."""
    image = paper or Image.new("RGB", (sheet.width, sheet.height), sheet.paper.first)
    draw = ImageDraw.Draw(image)
    for rule in sheet.rules:
        if rule.framed:
            draw.rectangle(rule.box, outline=sheet.ink)
        else:
            draw.line(rule.box, fill=sheet.ink)
    for text in sheet.texts:
        draw.text((text.left, text.top), text.text, fill=sheet.ink, font=sheet.font(text))
    return image

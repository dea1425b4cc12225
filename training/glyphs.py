"""Reading practice with a shortcut: for each image token, which characters lie in its square.

A question and its answer tell the encoder little about where a letter was misread. Here the characters themselves are
the labels of the 32x32 pixels that one image token covers, in reading order, and a small head that is thrown away
after training has to name them. It makes the image tokens say what is written, long before answers could.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.grounds import add_noise, paint_ground
from foveate.evaluation.drawing.inks import choose_paper
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.sheets import Sheet, Text, paint_sheet
from foveate.evaluation.drawing.wording import PRINTED
from foveate.evaluation.example import Example
from foveate.evaluation.skills import forms, pages
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import load_font, typefaces
from foveate.models.lfm2_vl.tiles import TileGrid

SLOTS = 12
"""Characters that one image token may hold: two lines of six at the smallest size."""
FIRST, LAST = 33, 126
"""The characters that are told apart, by code point; class 0 is "no more"."""
CLASSES = LAST - FIRST + 2
UNLABELLED = -1
BLOCK_PIXELS = 32


@dataclass(frozen=True)
class Glyph:
    """One printed character."""

    character: str
    line: int
    """Number of its line, from top to bottom."""
    x: float
    """Centre, in pixels of the picture."""
    y: float
    """Centre, in pixels of the picture."""


@dataclass(frozen=True)
class LabelledExample:
    """An example, and the characters on its one picture."""

    example: Example
    glyphs: tuple[Glyph, ...]


def read_lines(random: Random) -> LabelledExample:
    """Return a picture that the tiler leaves as it is, with a few lines at 14 to 48 pixels."""
    width, height = _untouched_size(random)
    size = random.randint(14, 48)
    typeface, bold = random.choice(typefaces(Split.TRAINING)), random.random() < 0.25
    font, pitch = load_font(typeface, bold, size), round(size * random.uniform(1.25, 1.9))
    texts: list[Text] = []
    top = random.randint(2, pitch)
    while top + size * 1.3 < height:
        line = PRINTED[random.choice(list(PRINTED))](random, Split.TRAINING)
        spare = width - 8 - round(font.getlength(line))
        if spare >= 0:
            texts.append(Text(line, 4 + random.randint(0, spare), top, size, bold))
        top += pitch * random.choice((1, 1, 1, 2))
    ground, ink = choose_paper(random)
    sheet = Sheet(width, height, ground, ink, typeface, tuple(texts))
    image = paint_sheet(sheet, paint_ground(random, Split.TRAINING, ground, (width, height)))
    image = add_noise(random, image, random.choice((0, 0, 6, 10)))
    answer = "\n".join(text.text for text in texts) or "I don't know."
    return LabelledExample(Example("read_lines", (image,), "Read all the text.", answer), glyphs_of(sheet))


def read_page(random: Random) -> LabelledExample:
    """Return a question about a page, with all its characters."""
    page = choose_page(random, Split.TRAINING)
    question, answer = pages.ask_about(random, page)
    return LabelledExample(Example("read_page", (paint_sheet(page.sheet),), question, answer), glyphs_of(page.sheet))


def read_form(random: Random) -> LabelledExample:
    """Return a question about a form, with all its characters."""
    form = choose_form(random, Split.TRAINING)
    question, answer = forms.ask_about(random, form)
    return LabelledExample(Example("read_form", (paint_sheet(form.sheet),), question, answer), glyphs_of(form.sheet))


LABELLED: dict[str, Callable[[Random], LabelledExample]] = {
    "read_lines": read_lines,
    "read_page": read_page,
    "read_form": read_form,
}


def glyphs_of(sheet: Sheet) -> tuple[Glyph, ...]:
    """Return every character of a sheet's texts and its centre."""
    found = []
    for text in sheet.texts:
        font = sheet.font(text)
        _, top, _, bottom = sheet.box(text)
        before = 0.0
        for index, character in enumerate(text.text):
            after = font.getlength(text.text[: index + 1])
            if FIRST <= ord(character) <= LAST:
                found.append(Glyph(character, text.top, text.left + (before + after) / 2, (top + bottom) / 2))
            before = after
    return tuple(found)


def glyph_labels(glyphs: tuple[Glyph, ...], width: int, height: int, grid: TileGrid) -> Tensor:
    """Return `[image tokens, SLOTS]` int8 of a picture of `width` x `height` pixels: classes, and -1 behind the first
    0.

    A thumbnail is too small to read and is left unlabelled.
    """
    rows, columns = grid.tile.rows // 2, grid.tile.columns // 2
    across, down = grid.columns * columns * BLOCK_PIXELS / width, grid.rows * rows * BLOCK_PIXELS / height
    blocks: dict[int, list[Glyph]] = {}
    for glyph in glyphs:
        column, row = int(glyph.x * across) // BLOCK_PIXELS, int(glyph.y * down) // BLOCK_PIXELS
        if 0 <= column < grid.columns * columns and 0 <= row < grid.rows * rows:
            tile = row // rows * grid.columns + column // columns
            blocks.setdefault((tile * rows + row % rows) * columns + column % columns, []).append(glyph)
    labels = torch.full((grid.rows * grid.columns * rows * columns, SLOTS), UNLABELLED, dtype=torch.int8)
    labels[:, 0] = 0
    for block, inside in blocks.items():
        ordered = sorted(inside, key=lambda glyph: (glyph.line, glyph.x))[:SLOTS]
        classes = [ord(glyph.character) - FIRST + 1 for glyph in ordered] + [0]
        labels[block, : len(classes[:SLOTS])] = torch.tensor(classes[:SLOTS], dtype=torch.int8)
    thumbnail = (grid.thumbnail.rows // 2) * (grid.thumbnail.columns // 2) if grid.thumbnail else 0
    return torch.cat([labels, unlabelled(thumbnail)])


def unlabelled(tokens: int) -> Tensor:
    """Return the labels of image tokens whose characters are not known."""
    return torch.full((tokens, SLOTS), UNLABELLED, dtype=torch.int8)


def _untouched_size(random: Random) -> tuple[int, int]:
    # Multiples of 32 with 64 to 256 image tokens: the tiler resizes nothing, so a pixel stays where it is.
    while True:
        columns, rows = random.randint(4, 24), random.randint(3, 20)
        if 64 <= columns * rows <= 256:
            return columns * BLOCK_PIXELS, rows * BLOCK_PIXELS

"""Reading practice with a shortcut: for each image token, which characters lie in its square.

A question and its answer tell the encoder little about where a letter was misread. Here the characters themselves are
the labels of the 32x32 pixels that one image token covers, in reading order, and a small head that is thrown away
after training has to name them. It makes the image tokens say what is written, long before answers could.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.evaluation.drawing.sheets import Sheet
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

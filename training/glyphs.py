"""Reading practice with a shortcut: for each image token, which characters lie in its square.

A question and its answer tell the encoder little about where a letter was misread. Here the characters themselves are
the labels of the 32x32 pixels that one image token covers, in reading order, and a small head that is thrown away
after training has to name them. It makes the image tokens say what is written, long before answers could.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from foveate.evaluation.drawing.colours import COLOURS
from foveate.evaluation.drawing.figures import SHAPES
from foveate.evaluation.drawing.scenes import Scene
from foveate.evaluation.drawing.sheets import Sheet
from foveate.models.lfm2_vl.tiles import TileGrid

SLOTS = 12
"""Characters that one image token may hold: two lines of six at the smallest size."""
CENTRE = "centre"
SYMBOLS = (*map(chr, range(33, 127)), *COLOURS, *SHAPES, CENTRE)
"""What is told apart: the printed characters, the colours and shapes of drawn figures, and their centres, by which they
are counted. Class 0 is "no more"."""
CLASS_OF = {symbol: number for number, symbol in enumerate(SYMBOLS, 1)}
CLASSES = len(SYMBOLS) + 1
UNLABELLED = -1
BLOCK_PIXELS = 32


@dataclass(frozen=True)
class Glyph:
    """One printed character, or the colour or the shape of a figure."""

    symbol: str
    line: int
    """What orders the symbols under one image token before x does."""
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
            if character in CLASS_OF:
                found.append(Glyph(character, text.top, text.left + (before + after) / 2, (top + bottom) / 2))
            before = after
    return tuple(found)


def figures_of(scene: Scene) -> tuple[Glyph, ...]:
    """Return the colour and the shape of every figure, at nine points around its centre, and the centre."""
    found = []
    for figure in scene.figures:
        found.append(Glyph(CENTRE, 2, *figure.centre))
        for across, down in product((-0.25, 0, 0.25), repeat=2):
            x, y = (at + step * figure.size_pixels for at, step in zip(figure.centre, (across, down), strict=True))
            found += [Glyph(figure.kind.colour, 0, x, y), Glyph(figure.kind.shape, 1, x, y)]
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
        ordered = sorted(inside, key=lambda glyph: (glyph.line, glyph.x))
        # A large figure has several of its points in one block.
        ordered = [
            glyph
            for at, glyph in enumerate(ordered)
            if len(glyph.symbol) == 1 or not at or glyph.symbol != ordered[at - 1].symbol
        ][:SLOTS]
        classes = [*(CLASS_OF[glyph.symbol] for glyph in ordered), 0]
        labels[block, : len(classes[:SLOTS])] = torch.tensor(classes[:SLOTS], dtype=torch.int8)
    thumbnail = (grid.thumbnail.rows // 2) * (grid.thumbnail.columns // 2) if grid.thumbnail else 0
    return torch.cat([labels, unlabelled(thumbnail)])


def unlabelled(tokens: int) -> Tensor:
    """Return the labels of image tokens whose characters are not known."""
    return torch.full((tokens, SLOTS), UNLABELLED, dtype=torch.int8)

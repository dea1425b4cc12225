"""Dense reading for training: everything that stands in a picture of at most 512 pixels a side, or a strip of a form.

Answers: the text line by line, lines parted by a newline, a label and its value by a space.
"""

from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Final

from PIL import Image

from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.grounds import add_noise, paint_ground
from foveate.evaluation.drawing.inks import choose_paper
from foveate.evaluation.drawing.sheets import Sheet, Text, choose_sheet_colours, paint_sheet
from foveate.evaluation.drawing.wording import PRINTED, some_words
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import Font, load_font, typefaces

__all__ = ["WORDINGS", "draw"]

WORDINGS: Final = {
    "all": (
        "Read all the text.",
        "Read all the text, line by line.",
        "What does all the text say?",
        "Transcribe this picture.",
        "Write down all the text.",
    ),
}

_MOST_LINES: Final = 10
_WIDEST: Final = 512
_PAGE_SIZES: Final = (16, 24)
_PAGE_SCALES: Final = ((0.86, 0.96), (0.81, 0.85))
"""By how much the width and the height of a large page shrink when it is cut into tiles."""


def draw(random: Random, split: Split) -> Example:
    """Return a picture of a few lines with the question what they say: loose lines, a piece of a page, or of a form."""
    image, lines = random.choice((_loose_lines, _loose_lines, _piece_of_page, _strip_of_form))(random, split)
    return Example("transcription", (image,), worded(random, WORDINGS["all"]), "\n".join(lines))


def _loose_lines(random: Random, split: Split) -> tuple[Image.Image, list[str]]:
    """Return lines of words, numbers, dates and prices at one size from 14 to 32, on any ground."""
    size, pieces = random.randint(14, 32), [PRINTED[random.choice(list(PRINTED))] for _ in range(3)]
    lines = [
        " ".join(make(random, split) for make in random.sample(pieces, random.randint(1, 3)))
        for _ in range(random.randint(1, _MOST_LINES))
    ]
    sheet, lines = _stacked(random, split, lines, size)
    ground, ink = choose_paper(random)
    paper = paint_ground(random, split, ground, (sheet.width, sheet.height))
    image = paint_sheet(replace(sheet, paper=ground, ink=ink), paper)
    return add_noise(random, image, random.choice((0, 0, 6, 10))), lines


def _piece_of_page(random: Random, split: Split) -> tuple[Image.Image, list[str]]:
    """Return lines of words as the encoder sees those of a large page: shrunk, more in height than in width."""
    size = random.randint(*_PAGE_SIZES)
    lines = [" ".join(some_words(random, split, random.randint(2, 5))) for _ in range(random.randint(3, _MOST_LINES))]
    sheet, lines = _stacked(random, split, lines, size)
    across, down = (random.uniform(*scales) for scales in _PAGE_SCALES)
    shrunk = (round(sheet.width * across), round(sheet.height * down))
    return paint_sheet(sheet).resize(shrunk, Image.Resampling.BILINEAR), lines


def _strip_of_form(random: Random, split: Split) -> tuple[Image.Image, list[str]]:
    """Return some rows of a receipt, an invoice or a form, over its whole width, cut between two rows."""
    sheet = choose_form(random, split).sheet
    rows = [list(row) for _, row in groupby(sheet.texts, key=lambda text: text.top)]
    count = min(len(rows), random.randint(3, _MOST_LINES))
    first = random.randint(0, len(rows) - count)
    tops = [min(sheet.box(text)[1] for text in row) for row in rows]
    bottoms = [max(sheet.box(text)[3] for text in row) for row in rows]
    cuts = [(above + below) / 2 for above, below in zip([0, *bottoms], [*tops, sheet.height], strict=True)]
    strip = (0, round(cuts[first]), sheet.width, round(cuts[first + count]))
    chosen = rows[first : first + count]
    return paint_sheet(sheet).crop(strip), [" ".join(text.text for text in row) for row in chosen]


def _stacked(random: Random, split: Split, lines: list[str], size: int) -> tuple[Sheet, list[str]]:
    """Return a sheet of 128 to 512 pixels a side with the lines below one another, and those lines as they fitted.

    What is too long loses words at its end, and the lines for which there is no room are left out.
    """
    typeface, bold, margin = random.choice(typefaces(split)), random.random() < 0.2, random.randint(6, 24)
    font, pitch = load_font(typeface, bold, size), size * random.uniform(1.25, 1.7)
    indent, room = size * random.choice((0, 0, 1)), _WIDEST - 2 * margin
    fitting = [_shortened(font, line, room - indent) for line in lines][: int(room / pitch)]
    used_width = round(max(font.getlength(line) for line in fitting)) + indent + 2 * margin
    used_height = round(len(fitting) * pitch) + 2 * margin
    width, height = (
        random.randint(max(128, used), min(_WIDEST, max(192, 2 * used))) for used in (used_width, used_height)
    )
    left = margin + random.randint(0, width - used_width)
    top = margin + random.randint(0, height - used_height)
    texts = tuple(
        Text(line, left + random.choice((0, indent)), round(top + at * pitch), size, bold)
        for at, line in enumerate(fitting)
    )
    paper, ink = choose_sheet_colours(random)
    return Sheet(width, height, paper, ink, typeface, texts), fitting


def _shortened(font: Font, line: str, room: float) -> str:
    """Return the line without the words at its end that exceed the room, in pixels."""
    words = line.split()
    while font.getlength(" ".join(words)) > room and len(words) > 1:
        words.pop()
    return " ".join(words)

"""Rows of a form or a receipt, and how they are set: labels at the left, values in a column or at the right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from foveate.evaluation.drawing.sheets import Rule, Sheet, Text, choose_sheet_colours
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import Font, Typeface, load_font, typefaces

__all__ = ["Row", "set_rows"]

_SIZES: Final = (18, 28)
_LEAST_SIDE: Final = 512
_MOST: Final = (1000, 1400)
_PITCHES: Final = (1.35, 1.9)
_TALL: Final = "dpgh(j$"
"""Letters that reach as high and as low as any."""


@dataclass(frozen=True)
class Row:
    """One line of a form: a label with its value, or a single text."""

    label: str
    value: str = ""
    middle: str = ""
    """Between both, such as a quantity."""
    bold: bool = False
    large: bool = False
    """Half as large again."""
    centred: bool = False
    """Only where there is no value."""
    ruled: bool = False
    """Whether a line is drawn below it."""

    @property
    def height(self) -> float:
        """In lines."""
        return 1.6 if self.large else 1.0


@dataclass(frozen=True)
class _Setting:
    """How the rows of one sheet are set. Lengths are in pixels."""

    typeface: Typeface
    size: int
    margin: int
    label_width: float
    """The widest label with the gap after it."""
    middle_width: float
    """The widest text in the middle with the gap after it, 0 where there is none."""
    needed_width: int
    """What the sheet has to have."""


def set_rows(random: Random, split: Split, rows: Sequence[Row], *, flush_right: bool) -> Sheet:
    """Return a sheet of 512x512 to 1000x1400 pixels with at most 28 rows below one another.

    Values end at the right margin, as amounts do, where `flush_right`; otherwise they begin below one another.
    """
    setting = _choose_setting(random, split, rows)
    needed = max(_LEAST_SIDE, setting.needed_width)
    width = random.randint(needed, min(_MOST[0], max(640, needed + 160)))
    lines = sum(row.height for row in rows)
    pitch = min(setting.size * random.uniform(*_PITCHES), (_MOST[1] - 2 * setting.margin) / lines)
    height = max(_LEAST_SIDE, 2 * setting.margin + round(lines * pitch))
    height = min(_MOST[1], height + random.randint(0, 80))
    texts: list[Text] = []
    rules: list[Rule] = []
    top = float(setting.margin)
    for row in rows:
        texts += _texts(setting, row, width, round(top), flush_right=flush_right)
        next_top = top + row.height * pitch
        if row.ruled:
            middle = round(_between(setting, row, top, next_top))
            rules.append(Rule((setting.margin, middle, width - setting.margin, middle)))
        top = next_top
    paper, ink = choose_sheet_colours(random)
    return Sheet(width, height, paper, ink, setting.typeface, tuple(texts), tuple(rules))


def _choose_setting(random: Random, split: Split, rows: Sequence[Row]) -> _Setting:
    """Return a setting of the largest size up to a drawn one at which the rows are not too wide."""
    typeface, size, margin = random.choice(typefaces(split)), random.randint(*_SIZES), random.randint(24, 60)
    setting = _measured(typeface, size, margin, rows)
    while setting.needed_width > _MOST[0] and size > _SIZES[0]:
        size -= 1
        setting = _measured(typeface, size, margin, rows)
    return setting


def _measured(typeface: Typeface, size: int, margin: int, rows: Sequence[Row]) -> _Setting:
    """Return the setting in which the columns are as wide as their texts and the gaps between them."""

    def widest(texts: Iterable[tuple[Row, str]]) -> float:
        return max((_font(typeface, row, size).getlength(text) for row, text in texts if text), default=-1.2 * size)

    label = widest((row, row.label) for row in rows if row.value) + 1.2 * size
    middle = widest((row, row.middle) for row in rows) + 1.2 * size
    value = widest((row, row.value) for row in rows) + 1.2 * size
    alone = widest((row, row.label) for row in rows if not row.value)
    return _Setting(typeface, size, margin, label, middle, 2 * margin + round(max(label + middle + value, alone)))


def _texts(setting: _Setting, row: Row, width: int, top: int, *, flush_right: bool) -> Iterable[Text]:
    """Yield the label, the middle and the value of a row in their places."""
    font, size, left = _font(setting.typeface, row, setting.size), _size_of(row, setting.size), setting.margin
    label_left = (width - font.getlength(row.label)) / 2 if row.centred else left
    yield Text(row.label, round(label_left), top, size, row.bold)
    if row.middle:
        yield Text(row.middle, round(left + setting.label_width), top, size, row.bold)
    if row.value:
        value_left = left + setting.label_width + setting.middle_width
        if flush_right:
            value_left = width - setting.margin - font.getlength(row.value)
        yield Text(row.value, round(value_left), top, size, row.bold)


def _between(setting: _Setting, row: Row, top: float, next_top: float) -> float:
    """Return the height in the middle between the lowest ink of a row and the highest of the next one."""
    lowest = _font(setting.typeface, row, setting.size).getbbox(_TALL)[3]
    highest = load_font(setting.typeface, False, setting.size).getbbox(_TALL)[1]
    return (top + lowest + next_top + highest) / 2


def _size_of(row: Row, size: int) -> int:
    return round(1.5 * size) if row.large else size


def _font(typeface: Typeface, row: Row, size: int) -> Font:
    return load_font(typeface, row.bold, _size_of(row, size))

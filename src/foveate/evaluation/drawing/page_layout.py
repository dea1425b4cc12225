"""Where the title, the headings and the lines of a page stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from foveate.evaluation.drawing.sheets import Rule, Sheet, Text, choose_sheet_colours
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import Typeface, load_font, typefaces

__all__ = ["PageStyle", "Section", "choose_page_style", "lay_out"]

_WIDTHS: Final = (1600, 1792)
_HEIGHTS: Final = (1200, 1264)
"""Every such page is cut into three by two tiles of 512x512, at 0.81 to 0.96 of its size."""
_SIZES: Final = (16, 24)
_TITLE_SIZES: Final = (28, 40)
_LEAST_PITCH: Final = 1.3
_PITCHES: Final = (1.35, 2.5)
"""From line to line, in sizes of the headings. A full column goes down to the least."""
_GAP: Final = 0.7
"""Before a heading, in lines."""


@dataclass(frozen=True)
class Section:
    """A heading with the lines under it."""

    heading: str
    lines: tuple[str, ...]
    """Each two to five words, without the number that may be printed before it."""

    @property
    def height(self) -> float:
        """In lines, with the gap after it."""
        return 1 + len(self.lines) + _GAP


@dataclass(frozen=True)
class PageStyle:
    """The measures of a page, in pixels, and its letters."""

    width: int
    height: int
    left: int
    top: int
    size: int
    """Of the lines; the headings are a little larger where there is room up to 24."""
    title_size: int
    columns: int
    typeface: Typeface
    numbered: bool
    """Whether the lines are numbered from 1 through the page; headings are not."""

    @property
    def column_width(self) -> int:
        """From the left edge of a column to that of the next."""
        return (self.width - self.left - 60) // self.columns

    @property
    def heading_size(self) -> int:
        """The size of the headings."""
        return min(_SIZES[1], self.size + 3)

    @property
    def body_top(self) -> int:
        """Where the columns begin, below the title."""
        return self.top + round(2.2 * self.title_size)

    @property
    def body_height(self) -> int:
        """What the columns have, above a margin for the page number."""
        return self.height - self.body_top - 90

    def most_rows(self, section_rows: int) -> int:
        """Return how many headings and lines fit, with sections of at least `section_rows` of them."""
        lines = self.body_height * self.columns / (_LEAST_PITCH * self.heading_size)
        return int(lines / (1 + _GAP / section_rows))


def choose_page_style(random: Random, split: Split) -> PageStyle:
    """Return the measures and letters of a page of at least 1600x1200 pixels."""
    return PageStyle(
        width=random.randint(*_WIDTHS),
        height=random.randint(*_HEIGHTS),
        left=random.randint(60, 140),
        top=random.randint(40, 90),
        size=random.randint(*_SIZES),
        title_size=random.randint(*_TITLE_SIZES),
        columns=random.randint(1, 3),
        typeface=random.choice(typefaces(split)),
        numbered=random.random() < 0.3,
    )


def lay_out(
    random: Random, style: PageStyle, title: str, sections: Sequence[Section], page_number: int | None
) -> Sheet:
    """Return the sheet with the title, the sections column by column, and the page number at the foot."""
    columns = _in_columns(sections, style.columns)
    loosest = style.body_height / max(sum(section.height for section in column) for column in columns)
    pitch = random.uniform(*(min(times * style.heading_size, loosest) for times in _PITCHES))
    texts = [Text(title, style.left, style.top, style.title_size, bold=True)]
    headings: list[Text] = []
    number = 0  # Of the line that was printed last.
    for at, column in enumerate(columns):
        left, top = style.left + at * style.column_width, float(style.body_top)
        for section in column:
            headings.append(Text(section.heading, left, round(top), style.heading_size, bold=True))
            for line in section.lines:
                top, number = top + pitch, number + 1
                text = f"{number}. {line}" if style.numbered else line
                texts.append(Text(text, left, round(top), style.size))
            top += (1 + _GAP) * pitch
    if page_number is not None:
        texts.append(Text(f"page {page_number}", style.width // 2 - 40, style.height - 60, style.size))
    rules: tuple[Rule, ...] = ()
    if _can_be_underlined(style, pitch) and (style.typeface.bold == style.typeface.regular or random.random() < 0.3):
        rules = tuple(_underline(style, heading) for heading in headings)
    paper, ink = choose_sheet_colours(random)
    return Sheet(style.width, style.height, paper, ink, style.typeface, (*texts, *headings), rules)


def _in_columns(sections: Sequence[Section], count: int) -> list[list[Section]]:
    """Return the sections of each column, in order, the columns about equally long."""
    share = sum(section.height for section in sections) / count
    columns: list[list[Section]] = [[]]
    filled = 0.0
    for section in sections:
        if filled >= share * len(columns):
            columns.append([])
        columns[-1].append(section)
        filled += section.height
    return columns


def _can_be_underlined(style: PageStyle, pitch: float) -> bool:
    """Whether a line fits between a heading and the highest letters of the line below it."""
    heading, line = (
        load_font(style.typeface, bold, size) for bold, size in ((True, style.heading_size), (False, style.size))
    )
    return heading.getbbox("gjpqy")[3] + 3 < pitch - 1 + line.getbbox("bdfhkl")[1]


def _underline(style: PageStyle, heading: Text) -> Rule:
    left, _, right, bottom = load_font(style.typeface, heading.bold, heading.size_pixels).getbbox(heading.text)
    under = heading.top + round(bottom) + 1
    return Rule((heading.left + round(left), under, heading.left + round(right), under))

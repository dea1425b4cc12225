"""Pages of small text: a title, and sections of a heading with a few short lines, in one to three columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from foveate.evaluation.drawing.page_layout import PageStyle, Section, choose_page_style, lay_out
from foveate.evaluation.drawing.sheets import Sheet
from foveate.evaluation.drawing.wording import some_words
from foveate.evaluation.splits import Split
from foveate.evaluation.typefaces import load_font

__all__ = ["Page", "choose_page"]

_ROWS: Final = (20, 32)
"""The headings and lines of one page; its title and its page number come on top."""
_SECTION_ROWS: Final = (3, 6)
_HEADING_WORDS: Final = (1, 3)
_LINE_WORDS: Final = (2, 5)
_WIDE: Final = 1.0
"""The most sizes of its font that a text takes for each of its letters, so that few texts have to be measured."""
_CASES: Final = {"lower": str.lower, "capital": str.capitalize, "title": str.title, "upper": str.upper}


@dataclass(frozen=True)
class Page:
    """A page and what is written on it. No word occurs twice."""

    sheet: Sheet
    title: str
    sections: tuple[Section, ...]
    numbered: bool
    """Whether the lines are numbered from 1 through the page; headings are not."""
    page_number: int | None
    """Printed at the foot, where there is one."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines under headings, in order."""
        return tuple(line for section in self.sections for line in section.lines)


def choose_page(random: Random, split: Split) -> Page:
    """Return a page of at least 1600x1200 pixels with 20 to 32 headings and lines of 16 to 24 pixels."""
    style = choose_page_style(random, split)
    words = iter(some_words(random, split, _HEADING_WORDS[1] + _LINE_WORDS[1] * _ROWS[1]))
    title = " ".join(islice(words, random.randint(*_HEADING_WORDS))).title()
    heading_case, line_case = random.choice(("title", "capital", "upper")), random.choice(("lower", "lower", "capital"))
    most = max(_ROWS[0], min(_ROWS[1], style.most_rows(_SECTION_ROWS[0])))
    sections = []
    for rows in _section_rows(random, random.randint(_ROWS[0], most)):
        heading = _fitted(random, style, words, heading_case, _HEADING_WORDS)
        lines = (_fitted(random, style, words, line_case, _LINE_WORDS) for _ in range(rows - 1))
        sections.append(Section(heading, tuple(lines)))
    page_number = random.choice((None, random.randint(2, 400)))
    sheet = lay_out(random, style, title, sections, page_number)
    return Page(sheet, title, tuple(sections), style.numbered, page_number)


def _section_rows(random: Random, rows: int) -> Iterator[int]:
    """Yield the rows of each section, three to six, `rows` in all."""
    least, most = _SECTION_ROWS
    while rows > most - 1:
        taken = random.randint(least, min(most, rows - least))
        rows -= taken
        yield taken
    yield rows


def _fitted(random: Random, style: PageStyle, words: Iterator[str], case: str, counts: tuple[int, int]) -> str:
    """Return some of the words, fewer than drawn (but no fewer than the least) where the column is narrow."""
    taken = list(islice(words, random.randint(*counts)))
    room = style.column_width - 100
    if len(" ".join(taken)) * style.heading_size * _WIDE > room:
        font = load_font(style.typeface, counts is _HEADING_WORDS, style.heading_size)
        while len(taken) > counts[0] and font.getlength(_CASES[case](" ".join(taken))) > room:
            taken.pop()
    return _CASES[case](" ".join(taken))

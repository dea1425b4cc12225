"""Pages: large sheets of small text, in which one line has to be found.

Answers: a line, a word or a title as it is printed (without the number before a line), or a page number in digits.
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.pages import Page, choose_page
from foveate.evaluation.drawing.sheets import paint_sheet
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "ask_about", "draw"]

WORDINGS: Final = {
    "under": (
        "What is written under the heading {heading}?",
        'What is written under the heading "{heading}"?',
        "What is the first line under the heading {heading}?",
        'Which line comes right after the heading "{heading}"?',
        "Read the line below the heading {heading}.",
    ),
    "last_word": (
        "What is the last word of the line that begins with {word}?",
        'What is the last word of the line that begins with "{word}"?',
        "Which word ends the line that starts with {word}?",
        'One line starts with "{word}". What is its last word?',
    ),
    "rest": (
        "What does the line that begins with {word} say?",
        'Read the line that begins with "{word}".',
        "Which line begins with {word}?",
        'What is written in the line that starts with "{word}"?',
    ),
    "numbered": (
        "What is the last word of line {number}?",
        "Which word ends line {number}?",
        "What is the final word in line {number}?",
        "Name the last word of line number {number}.",
    ),
    "line": (
        "What does line {number} say?",
        "What is written in line {number}?",
        "Read line {number}.",
        "What is line number {number}?",
    ),
    "title": (
        "What is the title of this page?",
        "What is the title?",
        "What does the title say?",
        "Which title stands at the top of the page?",
    ),
    "page_number": (
        "What is the page number?",
        "Which page is this?",
        "What is the number of this page?",
        "What page number is printed at the bottom?",
    ),
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about a line of a page of at least 1600x1200 pixels."""
    page = choose_page(random, split)
    question, answer = ask_about(random, page)
    return Example("pages", (paint_sheet(page.sheet),), question, answer)


def ask_about(random: Random, page: Page) -> tuple[str, str]:
    """Return a question about a page, with its answer."""
    by_number, by_text = ("numbered", "line"), ("last_word", "rest")
    kinds = ["under", "under", "title", *(by_number if page.numbered else by_text) * 2]
    kinds += ["page_number"] if page.page_number is not None else []
    kind = random.choice(kinds)
    wordings, section, at = WORDINGS[kind], random.choice(page.sections), random.randrange(len(page.lines))
    line = page.lines[at]
    first, *_, last = line.split()
    match kind:
        case "under":
            return worded(random, wordings, heading=section.heading), section.lines[0]
        case "last_word":
            return worded(random, wordings, word=first), last
        case "rest":
            return worded(random, wordings, word=first), line
        case "numbered":
            return worded(random, wordings, number=str(at + 1)), last
        case "line":
            return worded(random, wordings, number=str(at + 1)), line
        case "title":
            return worded(random, wordings), page.title
        case _:
            return worded(random, wordings), str(page.page_number)

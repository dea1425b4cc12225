"""Handwritten digits: one, or a number of two to four.

Answers: the digits, such as "7" or "4096".
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.handwriting import choose_handwriting, paint_handwriting
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "draw", "some_number"]

WORDINGS: Final = {
    "one": (
        "Which digit is this?",
        "What digit is written here?",
        "What digit do you see?",
        "Read the handwritten digit.",
    ),
    "several": (
        "Which number is this?",
        "What number is written here?",
        "What number do you see?",
        "Read the handwritten number.",
    ),
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about one to four handwritten digits."""
    text = some_number(random, random.choice((1, 1, 2, 3, 4)))
    image = paint_handwriting(random, split, choose_handwriting(random, split, text))
    return Example("digits", (image,), worded(random, WORDINGS["one" if len(text) == 1 else "several"]), text)


def some_number(random: Random, length: int) -> str:
    """Return `length` digits that begin with 0 only where there is one."""
    return str(random.randint(0, 9) if length == 1 else random.randrange(10 ** (length - 1), 10**length))

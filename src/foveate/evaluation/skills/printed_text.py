"""Printed text: one line of it, a word, a few words, a number, a date, a time or a price.

Answers: the text as it is printed, capitals and punctuation included.
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.lettering import choose_lettering, paint_lettering
from foveate.evaluation.drawing.wording import PRINTED
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "draw"]

_ANY: Final = ("What does it say?", "What is written here?", "Read the text.", "What text do you see?")

WORDINGS: Final = {
    "word": (
        *_ANY,
        "What word is written here?",
        "Which word do you see?",
        "Read the word.",
        "What is the word in the picture?",
    ),
    "phrase": (*_ANY, "What words are written here?", "Which words do you see?", "Read the words."),
    "number": (*_ANY, "What number is written here?", "Which number do you see?", "Read the number."),
    "date": (*_ANY, "What date is written here?", "Which date do you see?", "Read the date."),
    "time": (*_ANY, "What time is written here?", "Which time do you see?", "Read the time."),
    "price": (*_ANY, "What price is written here?", "Which price do you see?", "Read the price."),
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about one line of text; half of the texts are single words."""
    printed = random.choice((*("word",) * 5, *PRINTED))
    text = PRINTED[printed](random, split)
    image = paint_lettering(random, split, choose_lettering(random, split, text))
    return Example("printed_text", (image,), worded(random, WORDINGS[printed]), text)

"""The skills: for each, an endless row of questions about drawn pictures, with answers that are right by construction.

Answers are short and always of one form: lower case for what the picture shows ("red", "star", "a red star", "the
second", "yes"), digits for numbers, printed text exactly as it is printed, and no full stop except after the two kinds
of sentences, descriptions and "I don't know." Each module says its own forms.

Nine skills are evaluated. `describe` and `transcription` are there to learn from.
"""

from collections.abc import Callable
from random import Random
from types import MappingProxyType
from typing import Final

from foveate.errors import ConfigurationError
from foveate.evaluation.example import Example
from foveate.evaluation.skills import (
    counting,
    describe,
    digits,
    forms,
    pages,
    pairs,
    printed_text,
    relations,
    shapes,
    transcription,
    unknown,
)
from foveate.evaluation.splits import Split

__all__ = ["EVALUATED_SKILLS", "SKILLS", "VERSION", "Draw", "draw"]

Draw = Callable[[Random, Split], Example]
"""Draws one example of a skill: every choice comes from the given source."""

VERSION: Final = 1
"""Goes up with every change of what is drawn for tests, so that results of different versions are not compared by
mistake."""

EVALUATED_SKILLS: Final[tuple[str, ...]] = (
    "shapes",
    "counting",
    "relations",
    "printed_text",
    "pages",
    "forms",
    "digits",
    "pairs",
    "unknown",
)
"""The skills that are tested, in the order of reports."""

SKILLS: Final = MappingProxyType[str, Draw](
    {
        "shapes": shapes.draw,
        "counting": counting.draw,
        "relations": relations.draw,
        "printed_text": printed_text.draw,
        "pages": pages.draw,
        "forms": forms.draw,
        "digits": digits.draw,
        "pairs": pairs.draw,
        "unknown": unknown.draw,
        "describe": describe.draw,
        "transcription": transcription.draw,
    }
)
"""Every skill by its name: those that are evaluated, then `describe` and `transcription`."""


def draw(skill: str, seed: int, split: Split) -> Example:
    """Return the example number `seed` of a skill. It depends on nothing but VERSION, skill, split and seed.

    The pixels depend on the versions of Pillow and of the packages of the extra `eval` too. Everything random comes
    from Python's own generator and nothing from the machine; only a processor that rounds sums of products in another
    way may move a level at the edge of something turned or enlarged.

    Raises:
        ConfigurationError: there is no skill of that name.
        MissingExtraError: a package of the extra is not installed.

    """
    if skill not in SKILLS:
        raise ConfigurationError(f"there is no skill {skill!r}; the skills are {', '.join(SKILLS)}")
    return SKILLS[skill](Random(f"{VERSION} {skill} {split} {seed}"), split)

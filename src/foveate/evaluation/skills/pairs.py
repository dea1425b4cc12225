"""Two pictures, compared: which of them shows or says something, or has more shapes, and whether both show it.

Answers: "the first" or "the second"; "yes" or "no" where the question is about both.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from PIL import Image

from foveate.evaluation.drawing.handwriting import choose_handwriting, paint_handwriting
from foveate.evaluation.drawing.lettering import choose_lettering, paint_lettering
from foveate.evaluation.drawing.scenes import Kind, compatible_kinds, paint_scene, scatter
from foveate.evaluation.drawing.wording import PRINTED
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import with_article, worded
from foveate.evaluation.skills.digits import some_number
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "draw"]

_Opposites = tuple[Image.Image, Image.Image, dict[str, str]]
"""The picture that is asked for, the other one, and what the question names."""

WORDINGS: Final = {
    "shows": (
        "Which picture shows {thing}, the first or the second?",
        "Which picture has {thing}, the first or the second?",
        "Where do you see {thing}, in the first or the second picture?",
        "In which picture is {thing}, the first or the second?",
    ),
    "more": (
        "Which picture has more shapes, the first or the second?",
        "Which picture shows more shapes, the first or the second?",
        "Where are there more shapes, in the first or the second picture?",
        "In which picture are there more shapes, the first or the second?",
    ),
    "says": (
        "Which picture says {text}, the first or the second?",
        'Which picture says "{text}", the first or the second?',
        "Where do you read {text}, in the first or the second picture?",
        "In which picture is {text} written, the first or the second?",
    ),
    "number": (
        "Which picture shows the number {text}, the first or the second?",
        "Where do you see the number {text}, in the first or the second picture?",
        "In which picture is the number {text}, the first or the second?",
        "Which picture has the number {text}, the first or the second?",
    ),
    "both": (
        "Do both pictures show {thing}?",
        "Is there {thing} in both pictures?",
        "Do you see {thing} in the first and in the second picture?",
        "Does each of the two pictures show {thing}?",
    ),
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about two pictures; each of its two answers comes alike often."""
    asked = random.choice(("shows", "shows", "more", "says", "number", "both"))
    if asked == "both":
        return _draw_both(random, split)
    right, wrong, slots = _OPPOSITES[asked](random, split)
    first = random.random() < 0.5
    pictures = (right, wrong) if first else (wrong, right)
    return Example("pairs", pictures, worded(random, WORDINGS[asked], **slots), "the first" if first else "the second")


def _draw_both(random: Random, split: Split) -> Example:
    """Return the question whether both pictures show a thing, which one or both of them do."""
    thing, having, lacking = _kinds_with_and_without(random, split)
    answer = random.choice(("yes", "no"))
    other = [having[0], *lacking[1:]] if answer == "yes" else lacking
    shown = [having, other]
    random.shuffle(shown)
    pictures = tuple(_scene(random, split, chosen) for chosen in shown)
    return Example("pairs", pictures, worded(random, WORDINGS["both"], thing=thing), answer)


def _showing(random: Random, split: Split) -> _Opposites:
    thing, having, lacking = _kinds_with_and_without(random, split)
    return _scene(random, split, having), _scene(random, split, lacking), {"thing": thing}


def _counted(random: Random, split: Split) -> _Opposites:
    few, many = sorted(random.sample(range(1, 7), 2))
    pool = compatible_kinds(random, split)
    more, fewer = (_scene(random, split, random.choices(pool, k=count)) for count in (many, few))
    return more, fewer, {}


def _printed(random: Random, split: Split) -> _Opposites:
    make = PRINTED[random.choice(("word", "word", "number", "price", "date"))]
    text, other = _two_unlike(lambda: make(random, split))
    right, wrong = (paint_lettering(random, split, choose_lettering(random, split, said)) for said in (text, other))
    return right, wrong, {"text": text}


def _handwritten(random: Random, split: Split) -> _Opposites:
    length = random.randint(1, 2)
    text, other = _two_unlike(lambda: some_number(random, length))
    right, wrong = (paint_handwriting(random, split, choose_handwriting(random, split, said)) for said in (text, other))
    return right, wrong, {"text": text}


_OPPOSITES: Final[dict[str, Callable[[Random, Split], _Opposites]]] = {
    "shows": _showing,
    "more": _counted,
    "says": _printed,
    "number": _handwritten,
}


def _kinds_with_and_without(random: Random, split: Split) -> tuple[str, list[Kind], list[Kind]]:
    """Return what to look for, one to four kinds of which only the first is that, and one to four that are not."""
    pool = compatible_kinds(random, split)
    target = random.choice(pool)
    thing, unlike = random.choice(
        (
            (target.phrase, [kind for kind in pool if kind != target]),
            (with_article(target.shape), [kind for kind in pool if kind.shape != target.shape]),
            (f"something {target.colour}", [kind for kind in pool if kind.colour != target.colour]),
        )
    )
    return thing, [target, *random.sample(unlike, random.randint(0, 3))], random.sample(unlike, random.randint(1, 4))


def _scene(random: Random, split: Split, chosen: list[Kind]) -> Image.Image:
    return paint_scene(random, split, scatter(random, chosen))


def _two_unlike(make: Callable[[], str]) -> tuple[str, str]:
    first = second = make()
    while second.lower() == first.lower():
        second = make()
    return first, second

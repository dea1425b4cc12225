"""Coloured shapes: their colours, names and places.

Answers: a colour ("red"), a shape ("star"), a coloured shape ("a red star"), a place ("top left", "middle", "right"),
the shapes from left to right ("star, circle"), or "yes" and "no".
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.figures import ALIKE
from foveate.evaluation.drawing.scenes import Cell, Kind, Scene, compatible_kinds, kinds, paint_scene, scatter
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import with_article, worded
from foveate.evaluation.splits import Split

__all__ = ["PLACES", "WORDINGS", "ask_about", "choose_scene", "draw"]

WORDINGS: Final = {
    "colour": (
        "What colour is the {shape}?",
        "What color is the {shape}?",
        "Which colour does the {shape} have?",
        "What is the colour of the {shape}?",
        "Name the colour of the {shape}.",
    ),
    "shape": (
        "What shape is {colour}?",
        "Which shape is {colour}?",
        "What is the {colour} shape?",
        "Name the shape that is {colour}.",
    ),
    "at": (
        "What is in the {place} of the picture?",
        "What do you see in the {place}?",
        "Which coloured shape is in the {place}?",
        "What is drawn in the {place}?",
    ),
    "where": (
        "Where is the {name}?",
        "Where in the picture is the {name}?",
        "In which part of the picture is the {name}?",
        "Where do you see the {name}?",
    ),
    "list": (
        "Which shapes do you see, from left to right?",
        "List the shapes from left to right.",
        "What shapes are there, from left to right?",
        "Name the shapes, going from left to right.",
    ),
    "present": (
        "Is there {phrase} in the picture?",
        "Do you see {phrase}?",
        "Is there {phrase}?",
        "Does the picture show {phrase}?",
    ),
}

PLACES: Final = (
    ("top left", "top", "top right"),
    ("left", "middle", "right"),
    ("bottom left", "bottom", "bottom right"),
)
"""The nine places, rows from the top, each a third of the width and height."""
_NAMED_PLACES: Final[dict[Cell, str]] = {
    (0, 0): "top left corner",
    (2, 0): "top right corner",
    (0, 2): "bottom left corner",
    (2, 2): "bottom right corner",
    (1, 1): "middle",
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about one to five coloured shapes, no two of one shape and one colour."""
    scene = choose_scene(random, split)
    question, answer = ask_about(random, split, scene)
    return Example("shapes", (paint_scene(random, split, scene),), question, answer)


def choose_scene(random: Random, split: Split) -> Scene:
    """Return one to five coloured shapes, no two of one shape and one colour."""
    return scatter(random, random.sample(compatible_kinds(random, split), random.randint(1, 5)))


def ask_about(random: Random, split: Split, scene: Scene) -> tuple[str, str]:
    """Return a question about a scene, with its answer."""
    asked = random.choice(("colour", "colour", "shape", "shape", "at", "where", "list", "present"))
    return _ask(random, split, scene, asked)


def _ask(random: Random, split: Split, scene: Scene, asked: str) -> tuple[str, str]:
    """Return a question of the kind `asked`, or of another kind where the scene has no single answer to it."""
    figures = list(scene.figures)
    random.shuffle(figures)
    for figure in figures:
        kind, wordings = figure.kind, WORDINGS[asked]
        others = [other.kind for other in figures if other is not figure]
        if asked == "colour" and all(other.shape != kind.shape for other in others):
            return worded(random, wordings, shape=kind.shape), kind.colour
        if asked == "shape" and all(other.colour != kind.colour for other in others):
            return worded(random, wordings, colour=kind.colour), kind.shape
        if asked == "at" and figure.cell in _NAMED_PLACES:
            return worded(random, wordings, place=_NAMED_PLACES[figure.cell]), kind.phrase
    columns, shapes = {figure.cell[0] for figure in figures}, {figure.kind.shape for figure in figures}
    if asked == "list" and len(columns) == len(shapes) == len(figures):
        ordered = sorted(figures, key=lambda figure: figure.cell[0])
        return worded(random, WORDINGS[asked]), ", ".join(figure.kind.shape for figure in ordered)
    if asked == "present":
        return _ask_presence(random, split, [figure.kind for figure in figures])
    (column, row), name = figures[0].cell, figures[0].kind.name
    return worded(random, WORDINGS["where"], name=name), PLACES[row][column]


def _ask_presence(random: Random, split: Split, present: list[Kind]) -> tuple[str, str]:
    """Return a question whether something is there, half of the time by its shape alone, and yes or no alike often."""
    answer, by_shape = random.choice(("yes", "no")), random.random() < 0.5
    shapes = {kind.shape for kind in present}
    unclear = frozenset[str]() if shapes.isdisjoint(ALIKE) else ALIKE - shapes
    absent = [kind for kind in kinds(split) if kind not in present and kind.shape not in unclear]
    if by_shape:
        absent = [kind for kind in absent if kind.shape not in shapes]
    chosen = random.choice(present if answer == "yes" else absent)
    phrase = with_article(chosen.shape) if by_shape else chosen.phrase
    return worded(random, WORDINGS["present"], phrase=phrase), answer

"""Two shapes compared: left of, right of, above, below, bigger, smaller.

Answers: "yes" or "no", a coloured shape ("a red star"), or one of two that the question names ("the red star").
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from foveate.evaluation.drawing.figures import area_of
from foveate.evaluation.drawing.scenes import Cell, Kind, Scene, compatible_kinds, draw_scene, paint_scene
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "choose", "draw"]

WORDINGS: Final = {
    "side": (
        "Is the {first} {relation} the {second}?",
        "Is it true that the {first} is {relation} the {second}?",
        "Can you find the {first} {relation} the {second}?",
        "Does the {first} lie {relation} the {second}?",
    ),
    "neighbour": (
        "What is {relation} the {first}?",
        "Which coloured shape is {relation} the {first}?",
        "What do you see {relation} the {first}?",
        "Name the coloured shape {relation} the {first}.",
    ),
    "size": (
        "Is the {first} {relation} than the {second}?",
        "Is it true that the {first} is {relation} than the {second}?",
        "Would you say that the {first} is {relation} than the {second}?",
        "Compare the sizes: is the {first} {relation} than the {second}?",
    ),
    "which": (
        "Which is {relation}, the {first} or the {second}?",
        "Which one is {relation}: the {first} or the {second}?",
        "What is {relation}, the {first} or the {second}?",
        "Of the {first} and the {second}, which is {relation}?",
    ),
}


@dataclass(frozen=True)
class _Side:
    """A direction in the grid, with its names."""

    step: Cell
    names: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    """Only for a thing that is named before: "What is left of it?" would ask for the rest of it."""


_SIDES: Final = (
    _Side((-1, 0), ("to the left of",), ("left of",)),
    _Side((1, 0), ("to the right of",), ("right of",)),
    _Side((0, -1), ("above",)),
    _Side((0, 1), ("below", "under")),
)
_COMPARED: Final = ("bigger", "smaller", "larger")
_SURELY_BIGGER: Final = 1.5
"""The least ratio of two figures' diameters, and of their areas, where one is called bigger."""


def draw(random: Random, split: Split) -> Example:
    """Return a question about where a shape lies or how large it is beside another; yes and no come alike often."""
    scene, question, answer = choose(random, split)
    return Example("relations", (paint_scene(random, split, scene),), question, answer)


def choose(random: Random, split: Split) -> tuple[Scene, str, str]:
    """Return a scene, a question about it, and the answer."""
    return random.choice((_ask_side, _ask_neighbour, _ask_size))(random, split)


def _ask_side(random: Random, split: Split) -> tuple[Scene, str, str]:
    """Return a scene in which the first of two shapes lies on a side of the second, or on the opposite side."""
    side, answer = random.choice(_SIDES), random.choice(("yes", "no"))
    first, second, *others = _distinct_kinds(random, split, random.randint(2, 4))
    there, here = _apart(random, side.step)
    if answer == "no":
        there, here = here, there
    scene = _scene_around(random, [(first, there), (second, here)], others)
    names = {"first": first.name, "second": second.name, "relation": random.choice(side.names + side.short_names)}
    return scene, worded(random, WORDINGS["side"], **names), answer


def _ask_neighbour(random: Random, split: Split) -> tuple[Scene, str, str]:
    """Return a scene in which exactly one shape lies on the side of the one that is named."""
    side = random.choice(_SIDES)
    first, found, *others = _distinct_kinds(random, split, random.randint(2, 4))
    there, here = _apart(random, side.step)
    free = [
        cell for cell in _cells() if cell not in (there, here) and _along(cell, side.step) <= _along(here, side.step)
    ]
    cells = random.sample(free, min(len(others), len(free)))
    placed = [(first, here), (found, there), *zip(others, cells, strict=False)]
    scene = draw_scene(random, placed, (3, 3), loose=False)
    names = {"first": first.name, "relation": random.choice(side.names)}
    return scene, worded(random, WORDINGS["neighbour"], **names), found.phrase


def _ask_size(random: Random, split: Split) -> tuple[Scene, str, str]:
    """Return a scene of two shapes, one surely bigger than the other."""
    big, small = _distinct_kinds(random, split, 2)
    relation = random.choice(_COMPARED)
    least = _SURELY_BIGGER * max(1.0, (area_of(small.shape) / area_of(big.shape)) ** 0.5)
    large_share = random.uniform(0.75, 0.92)
    sizes = (large_share, large_share / random.uniform(least, least + 0.7))
    cells = random.choice((((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 0), (1, 1)), ((1, 1), (0, 0)), ((0, 1), (1, 0))))
    scene = draw_scene(random, [(big, cells[0]), (small, cells[1])], (2, 2), loose=True, sizes=sizes)
    named = [big, small]
    random.shuffle(named)
    right = small if relation == "smaller" else big
    names = {"first": named[0].name, "second": named[1].name, "relation": relation}
    if random.random() < 0.5:
        return scene, worded(random, WORDINGS["which"], **names), f"the {right.name}"
    return scene, worded(random, WORDINGS["size"], **names), "yes" if named[0] is right else "no"


def _distinct_kinds(random: Random, split: Split, count: int) -> list[Kind]:
    return random.sample(compatible_kinds(random, split), count)


def _apart(random: Random, step: Cell) -> tuple[Cell, Cell]:
    """Return two cells, the first at least as far along `step` from the second as across it."""
    pairs = [
        (there, here)
        for there in _cells()
        for here in _cells()
        if _along(there, step) - _along(here, step) >= max(1, _across(there, here, step))
    ]
    return random.choice(pairs)


def _scene_around(random: Random, placed: list[tuple[Kind, Cell]], others: list[Kind]) -> Scene:
    taken = {cell for _, cell in placed}
    cells = random.sample([cell for cell in _cells() if cell not in taken], len(others))
    return draw_scene(random, [*placed, *zip(others, cells, strict=True)], (3, 3), loose=False)


def _cells() -> tuple[Cell, ...]:
    return tuple((column, row) for row in range(3) for column in range(3))


def _along(cell: Cell, step: Cell) -> int:
    return cell[0] * step[0] + cell[1] * step[1]


def _across(one: Cell, other: Cell, step: Cell) -> int:
    return abs((one[0] - other[0]) * step[1]) + abs((one[1] - other[1]) * step[0])

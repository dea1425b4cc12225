"""Counting to six: shapes of one form, of one colour, of both, or all of them.

Answers: digits, "1" to "6".
"""

from collections.abc import Callable
from random import Random
from typing import Final

from foveate.evaluation.drawing.scenes import Kind, Scene, compatible_kinds, draw_scene, paint_scene
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import plural, worded
from foveate.evaluation.splits import Split

__all__ = ["MOST", "WORDINGS", "counted_scene", "draw", "ways_to_count"]

WORDINGS: Final = {
    "count": (
        "How many {things} are there?",
        "How many {things} do you see?",
        "How many {things} are in the picture?",
        "Count the {things}.",
        "What is the number of {things}?",
    ),
}
MOST: Final = 6
"""No question has a larger answer."""


def draw(random: Random, split: Split) -> Example:
    """Return a question about the number of some shapes, one to six, often among others."""
    scene, things, count = counted_scene(random, split)
    question = worded(random, WORDINGS["count"], things=things)
    return Example("counting", (paint_scene(random, split, scene),), question, str(count))


def counted_scene(random: Random, split: Split) -> tuple[Scene, str, int]:
    """Return a scene, what is counted in it (such as "red stars"), and how many of them there are."""
    pool = compatible_kinds(random, split)
    model = random.choice(pool)
    things, is_counted = random.choice(ways_to_count(model))
    count = random.randint(1, MOST)
    counted = [kind for kind in pool if is_counted(kind)]
    others = [kind for kind in pool if not is_counted(kind)]
    chosen = random.choices(counted, k=count)
    if others:
        chosen += random.choices(others, k=random.randint(0, 5))
    columns, rows = random.choice([grid for grid in ((3, 2), (3, 3), (4, 3)) if grid[0] * grid[1] >= len(chosen)])
    cells = [(at % columns, at // columns) for at in random.sample(range(columns * rows), len(chosen))]
    placed = list(zip(chosen, cells, strict=True))
    return draw_scene(random, placed, (columns, rows), loose=True), things, count


def ways_to_count(model: Kind) -> tuple[tuple[str, Callable[[Kind], bool]], ...]:
    """Return the ways of counting shapes like `model`: their names, and which kinds they count."""
    by_shape = (plural(model.shape), lambda kind: kind.shape == model.shape)
    by_colour = (f"{model.colour} shapes", lambda kind: kind.colour == model.colour)
    by_both = (plural(model.name), lambda kind: kind == model)
    everything = ("shapes", lambda _kind: True)
    return by_shape, by_shape, by_colour, by_both, everything

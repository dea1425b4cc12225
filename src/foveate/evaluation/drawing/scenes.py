"""Scenes: coloured figures in the cells of an invisible grid, so that none touches another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from PIL import Image

from foveate.evaluation.drawing.colours import COLOURS, Rgb, varied
from foveate.evaluation.drawing.figures import ALIKE, SHAPES, figure_mask, natural_turn
from foveate.evaluation.drawing.grounds import Ground, add_noise, choose_ground, paint_ground
from foveate.evaluation.phrases import with_article
from foveate.evaluation.splits import Split

__all__ = ["Cell", "Figure", "Kind", "Scene", "compatible_kinds", "draw_scene", "kinds", "paint_scene", "scatter"]

Cell = tuple[int, int]
"""Column and row in the grid, from 0, (0, 0) at the top left."""

_TEST_STEPS: Final = (0, 3, 7)


@dataclass(frozen=True)
class Kind:
    """What a figure is called: a coloured shape."""

    shape: str
    colour: str

    @property
    def name(self) -> str:
        """The two words, such as "red star"."""
        return f"{self.colour} {self.shape}"

    @property
    def phrase(self) -> str:
        """The name with its article, such as "a red star"."""
        return with_article(self.name)


@dataclass(frozen=True)
class Figure:
    """A figure in its place."""

    kind: Kind
    cell: Cell
    centre: tuple[float, float]
    """x and y in pixels."""
    size_pixels: int
    """The diameter of the circle around it."""
    turn_degrees: int
    fill: Rgb


@dataclass(frozen=True)
class Scene:
    """Figures on a ground. They lie apart: each stays inside its own cell."""

    width: int
    """In pixels."""
    height: int
    """In pixels."""
    ground: Ground
    noise: int
    """The most by which noise moves a level."""
    figures: tuple[Figure, ...]


@cache
def kinds(split: Split) -> tuple[Kind, ...]:
    """Return the coloured shapes of one side: of each shape, seven colours for training and three others for tests."""
    colours = list(COLOURS)
    held_out = {
        Kind(shape, colours[(at + step) % len(colours)]) for at, shape in enumerate(SHAPES) for step in _TEST_STEPS
    }
    every = (Kind(shape, colour) for shape in SHAPES for colour in colours)
    return tuple(kind for kind in every if (kind in held_out) is (split is Split.TEST))


def compatible_kinds(random: Random, split: Split, beside: Iterable[str] = ()) -> list[Kind]:
    """Return the kinds of one side that may share a picture with the shapes `beside`: circles or rings, never both."""
    present = ALIKE.intersection(beside)
    left_out = ALIKE - present if present else {random.choice(sorted(ALIKE))}
    return [kind for kind in kinds(split) if kind.shape not in left_out]


def draw_scene(
    random: Random,
    placed: Sequence[tuple[Kind, Cell]],
    grid: tuple[int, int],
    *,
    loose: bool,
    sizes: Sequence[float] = (),
) -> Scene:
    """Return a scene with each kind in its cell, no cell named twice, in a grid of so many columns and rows.

    Figures move up to the edges of their cells where `loose`; otherwise they stay near the middle. `sizes` are the
    diameters of the figures as shares of the cell's shorter side, 0 to 0.95; they are drawn where none are given.
    """
    width, height = random.randint(224, 448), random.randint(224, 448)
    cell_size = (width / grid[0], height / grid[1])
    fills = {kind.colour: varied(random, COLOURS[kind.colour]) for kind, _ in placed}
    shares = sizes or [random.uniform(0.55, 0.85) for _ in placed]
    figures = []
    for (kind, cell), share in zip(placed, shares, strict=True):
        size = int(share * min(cell_size))
        x, y = (_place(random, cell[axis], cell_size[axis], size, loose=loose) for axis in (0, 1))
        turn = natural_turn(random, kind.shape)
        figures.append(Figure(kind, cell, (x, y), size, turn, fills[kind.colour]))
    ground = choose_ground(random, tuple(fills.values()))
    return Scene(width, height, ground, random.choice((0, 0, 4, 10)), tuple(figures))


def scatter(random: Random, chosen: Sequence[Kind]) -> Scene:
    """Return a scene with one to nine kinds in the cells of a grid of three by three."""
    cells = [(at % 3, at // 3) for at in random.sample(range(9), len(chosen))]
    return draw_scene(random, list(zip(chosen, cells, strict=True)), (3, 3), loose=False)


def paint_scene(random: Random, split: Split, scene: Scene) -> Image.Image:
    """Return the RGB picture of a scene."""
    image = paint_ground(random, split, scene.ground, (scene.width, scene.height))
    for figure in scene.figures:
        mask = figure_mask(figure.kind.shape, figure.size_pixels, figure.turn_degrees)
        left, top = (round(at - figure.size_pixels / 2) for at in figure.centre)
        image.paste(figure.fill, (left, top), mask)
    return add_noise(random, image, scene.noise)


def _place(random: Random, index: int, length: float, size_pixels: int, *, loose: bool) -> float:
    """Return the middle of a figure along one axis: 2 pixels or more from the edges of its cell."""
    slack = max(0.0, (length - size_pixels) / 2 - 2)
    return (index + 0.5) * length + random.uniform(-1, 1) * (slack if loose else min(slack, 0.08 * length))

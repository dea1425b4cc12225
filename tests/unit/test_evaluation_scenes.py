"""What is said about coloured shapes is true of the pixels: they are found by colour, not asked how they were drawn."""

import re
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
import pytest
from scipy import ndimage

from foveate.evaluation import Split, draw
from foveate.evaluation.drawing.colours import COLOURS
from foveate.evaluation.drawing.figures import ALIKE, SHAPES, area_of, figure_mask
from foveate.evaluation.drawing.scenes import compatible_kinds, scatter
from foveate.evaluation.skills.counting import counted_scene
from foveate.evaluation.skills.shapes import PLACES

NAMES = "|".join(COLOURS)
both_sides = pytest.mark.parametrize("split", list(Split))


@dataclass(frozen=True)
class Blob:
    """A connected patch of one of the ten colours."""

    colour: str
    x: int
    """Of its middle, in pixels of the picture."""
    y: int
    width: int
    """In pixels of half the size, as are its height and its area."""
    height: int
    area: int


def blobs(image):
    """Find the patches near each of the ten colours, in half the size; none on grounds that may be white or black."""
    pixels = np.asarray(image.reduce(2)).astype(np.int16)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    if border.min() < 100 or border.max() > 172:
        return []
    found = []
    for colour, paint in COLOURS.items():
        near = (np.abs(pixels - np.array(paint, np.int16)) <= 22).all(axis=-1)
        if near.sum() < 20:
            continue
        labels, _ = ndimage.label(ndimage.binary_closing(near), np.ones((3, 3)))
        for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
            area = int((labels[rows, columns] == number).sum())
            width, height = columns.stop - columns.start, rows.stop - rows.start
            if area >= 20:
                found.append(Blob(colour, columns.start + columns.stop, rows.start + rows.stop, width, height, area))
    return found


@cache
def looked_at(skill, split, count):
    """Return text, answer, size and blobs of those among the first `count` examples whose blobs can be found."""
    seen = []
    for seed in range(count):
        example = draw(skill, seed, split)
        picture = example.pictures[0]
        if max(picture.size) <= 448 and (found := blobs(picture)):
            seen.append((f"{example.question} {example.answer}", example.answer, picture.size, found))
    return seen


def asked(skill, pattern, split, count):
    """Yield the groups of a pattern in question and answer, the answer, the size of the picture and its blobs."""
    for text, answer, size, found in looked_at(skill, split, count):
        if match := re.search(pattern, text):
            yield match.groups(), answer, size, found


def named(found, *colours):
    """Return the blob of each colour, or None where they are not one of each."""
    sets = [[blob for blob in found if blob.colour == colour] for colour in colours]
    return [only for (only,) in sets] if all(len(matching) == 1 for matching in sets) else None


@both_sides
def test_as_many_shapes_are_there_as_the_answer_says(split):
    pattern = rf"(?:({NAMES}) |many |the |of )shapes"
    checked = 0
    for (colour,), answer, _, found in asked("counting", pattern, split, 300):
        counted = [blob for blob in found if colour in (None, blob.colour)]
        assert len(counted) == int(answer)
        checked += 1
    assert checked >= 10


@both_sides
def test_as_many_shapes_of_one_form_are_there_as_the_answer_says(split):
    for seed in range(100):
        scene, things, count = counted_scene(Random(seed), split)
        colour, form = re.fullmatch(rf"(?:({NAMES}) )?(shape|{'|'.join(SHAPES)})e?s", things).groups()
        kinds = [figure.kind for figure in scene.figures]
        alike = [kind for kind in kinds if form in ("shape", kind.shape) and colour in (None, kind.colour)]
        assert len(alike) == count


@both_sides
def test_the_named_shape_lies_in_the_third_that_the_answer_names(split):
    checked = 0
    for (colour,), answer, size, found in asked("shapes", rf"[Ww]hi?e?[rc][eh].*\bis the ({NAMES}) \w+\?", split, 400):
        if blob := named(found, colour):
            row, column = int(3 * blob[0].y / size[1]), int(3 * blob[0].x / size[0])
            assert answer == PLACES[row][column]
            checked += 1
    assert checked >= 5


@both_sides
def test_the_answer_to_what_colour_is_among_the_colours_in_the_picture(split):
    for _, answer, _, found in asked("shapes", r"colou?r (?:is|does|of) (?:the )?(\w+)", split, 400):
        assert answer in {blob.colour for blob in found}


@both_sides
def test_yes_and_no_about_sides_are_true(split):
    pattern = (
        rf"(?:[Ii]s|find|Does) the ({NAMES}) \w+ (?:is |lie )?(to the left|left|to the right|right|above|below|under)"
    )
    pattern += rf"(?: of)? the ({NAMES}) \w+"
    checked = 0
    for (first, side, second), answer, _, found in asked("relations", pattern, split, 450):
        if pair := named(found, first, second):
            gap = pair[0].x - pair[1].x if "left" in side or "right" in side else pair[0].y - pair[1].y
            before = "left" in side or side == "above"
            assert answer == ("yes" if (gap < 0) == before else "no")
            checked += 1
    assert checked >= 5


@both_sides
def test_the_bigger_one_is_bigger_in_width_and_height_together_and_in_area(split):
    pattern = rf"(bigger|larger|smaller).*\b({NAMES}) \w+ (?:or|and) the ({NAMES}) \w+"
    checked = 0
    for (relation, first, second), answer, _, found in asked("relations", pattern, split, 450):
        if pair := named(found, first, second):
            small, big = sorted(pair, key=lambda blob: blob.width + blob.height)
            assert big.width + big.height >= 1.3 * (small.width + small.height)
            assert answer.split()[1] == (small if relation == "smaller" else big).colour
            checked += 1
    assert checked >= 5


@both_sides
def test_a_picture_said_to_show_something_of_a_colour_shows_it_and_the_other_does_not(split):
    checked = 0
    for seed in range(300):
        example = draw("pairs", seed, split)
        match = re.search(rf"something ({NAMES})", example.question)
        if match and example.answer.startswith("the "):
            asked_of, other = example.pictures if example.answer == "the first" else example.pictures[::-1]
            for picture, is_there in ((asked_of, True), (other, False)):
                if found := blobs(picture):
                    assert (match[1] in {blob.colour for blob in found}) is is_there
                    checked += 1
    assert checked >= 5


@both_sides
def test_a_colour_asked_for_in_vain_is_not_in_the_picture(split):
    for (colour,), answer, _, found in asked("unknown", rf"hape (?:is|that is) ({NAMES})", split, 150):
        assert answer == "I don't know."
        assert colour not in {blob.colour for blob in found}


@both_sides
def test_descriptions_name_as_many_shapes_as_there_are_with_their_colours(split):
    checked = 0
    for _, answer, _, found in asked("describe", f"[Aa]n? ({NAMES}) ({'|'.join(SHAPES)})", split, 150):
        colours = re.findall(rf"\b({NAMES}) (?:{'|'.join(SHAPES)})", answer)
        assert sorted(colours) == sorted(blob.colour for blob in found)
        checked += 1
    assert checked >= 5


@both_sides
def test_figures_stay_inside_the_picture_and_apart(split):
    random = Random(2)
    for _ in range(100):
        scene = scatter(random, random.sample(compatible_kinds(random, split), 5))
        for figure in scene.figures:
            radius = figure.size_pixels / 2
            assert radius <= figure.centre[0] <= scene.width - radius
            assert radius <= figure.centre[1] <= scene.height - radius
            for other in scene.figures:
                apart = np.hypot(figure.centre[0] - other.centre[0], figure.centre[1] - other.centre[1])
                assert other is figure or apart >= radius + other.size_pixels / 2


@both_sides
def test_figures_stand_out_from_the_ground(split):
    random = Random(3)
    scenes = [scatter(random, random.sample(compatible_kinds(random, split), 4)) for _ in range(400)]
    assert min(scene.ground.distance_to(figure.fill) for scene in scenes for figure in scene.figures) >= 45


@both_sides
def test_no_picture_shows_circles_and_rings(split):
    for seed in range(100):
        kinds = compatible_kinds(Random(seed), split)
        assert len(ALIKE.intersection(kind.shape for kind in kinds)) == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turn", [-10, 0, 7])
def test_the_mask_of_a_shape_has_the_area_of_its_outline(shape, turn):
    inked = np.asarray(figure_mask(shape, 120, turn)).sum() / 255 / 60**2
    hole = np.pi * 0.58**2 if shape == "ring" else 0
    assert inked == pytest.approx(area_of(shape) - hole, rel=0.03)

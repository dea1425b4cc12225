"""Printed and handwritten texts can be read: they stand out, are large enough, and nothing of them is cut off."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from foveate.evaluation import Split, draw
from foveate.evaluation.drawing.colours import contrast_ratio
from foveate.evaluation.drawing.grounds import Ground, paint_ground
from foveate.evaluation.drawing.handwriting import choose_handwriting, paint_handwriting
from foveate.evaluation.drawing.inks import choose_ink, choose_paper
from foveate.evaluation.drawing.lettering import choose_lettering, lettering_mask, paint_lettering
from foveate.evaluation.drawing.sheets import choose_sheet_colours
from foveate.evaluation.drawing.wording import PRINTED, amount
from foveate.evaluation.skills.digits import some_number

both_sides = pytest.mark.parametrize("split", list(Split))
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def letterings(split, count):
    random = Random(4)
    for _ in range(count):
        yield choose_lettering(random, split, PRINTED[random.choice(list(PRINTED))](random, split))


def ink_box(image):
    """Return the left, top, right and bottom of what is not white."""
    rows, columns = np.nonzero((np.asarray(image) != 255).any(axis=-1))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize(
    ("ink", "grounds", "ratio"),
    [
        (BLACK, [WHITE], 21),
        ((119, 119, 119), [WHITE], 4.478),
        ((255, 0, 0), [WHITE], 3.998),
        ((0, 0, 255), [BLACK], 2.444),
        (WHITE, [(255, 0, 0), (0, 0, 255)], 3.136),
        ((128, 128, 128), [BLACK, WHITE], 1),
    ],
)
def test_contrast_is_that_of_wcag_with_the_nearest_mixture_of_the_grounds(ink, grounds, ratio):
    assert contrast_ratio(ink, grounds) == pytest.approx(ratio, abs=0.001)


def test_inks_have_a_contrast_of_three_with_every_pixel_of_the_painted_ground():
    random = Random(5)
    for _ in range(60):
        ground, ink = choose_paper(random)
        painted = paint_ground(random, Split.TRAINING, ground, (64, 48))
        colours = {pixel for _, pixel in painted.getcolors(64 * 48)}
        assert min(contrast_ratio(ink, [colour]) for colour in colours) >= 3


def test_a_ground_on_which_no_ink_can_be_read_is_refused():
    with pytest.raises(ValueError, match=r"no ink has a contrast of 3\.0"):
        choose_ink(Random(0), Ground(BLACK, WHITE))


@both_sides
def test_letters_have_a_contrast_of_three_and_the_size_and_the_turn_that_are_promised(split):
    for lettering in letterings(split, 300):
        assert contrast_ratio(lettering.ink, lettering.ground.colours) >= 3
        assert 14 <= lettering.size_pixels <= 48
        assert abs(lettering.turn_degrees) <= 5


def test_sheets_have_inks_with_a_contrast_of_three():
    random = Random(6)
    for _ in range(300):
        paper, ink = choose_sheet_colours(random)
        assert contrast_ratio(ink, paper.colours) >= 3


@both_sides
def test_printed_text_is_whole_eight_pixels_or_more_from_the_edges(split):
    for lettering in letterings(split, 60):
        plain = replace(lettering, ink=BLACK, ground=Ground(WHITE, WHITE), blur_pixels=0, noise=0)
        image = paint_lettering(Random(7), split, plain)
        left, top, right, bottom = ink_box(image)
        assert min(left, top, image.width - right, image.height - bottom) >= 8
        assert (right - left, bottom - top) == lettering_mask(plain).size


@both_sides
def test_ink_is_as_high_as_letters_of_that_size_and_as_long_as_the_text(split):
    for lettering in letterings(split, 60):
        width, height = lettering_mask(replace(lettering, turn_degrees=0)).size
        assert 0.3 * lettering.size_pixels <= height <= 1.5 * lettering.size_pixels
        assert width == pytest.approx(lettering.font.getlength(lettering.text), abs=0.35 * lettering.size_pixels)


@both_sides
def test_pictures_of_printed_text_have_128_to_512_pixels_a_side(split):
    for seed in range(60):
        assert all(128 <= side <= 512 for side in draw("printed_text", seed, split).pictures[0].size)


@both_sides
def test_handwritten_digits_are_those_of_the_number_and_are_whole(split):
    random = Random(8)
    for length in (1, 2, 3, 4) * 8:
        text = some_number(random, length)
        assert len(text) == length
        assert length == 1 or text[0] != "0"
        chosen = replace(choose_handwriting(random, split, text), ink=BLACK, ground=Ground(WHITE, WHITE), noise=0)
        image = paint_handwriting(random, split, chosen)
        left, top, right, bottom = ink_box(image)
        assert min(left, top, image.width - right, image.height - bottom) >= 4
        assert max(image.size) <= 512
        columns = (np.asarray(image)[:, :, 0] != 255).any(axis=0)
        patches = int((np.diff(columns.astype(int)) == 1).sum()) + int(columns[0])
        assert 1 <= patches <= length
        assert right - left >= (length - 1) * 0.8 * chosen.side_pixels


@pytest.mark.parametrize(
    ("cents", "printed"), [(5, "$0.05"), (1240, "$12.40"), (99_999, "$999.99"), (123_456, "$1,234.56")]
)
def test_amounts_are_printed_in_dollars_and_two_digits_of_cents(cents, printed):
    assert amount(cents) == printed

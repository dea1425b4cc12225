"""Nothing that is drawn for training is drawn for tests, and a missing package is named with its remedy."""

import hashlib
import re
import sys
from random import Random

import pytest

from foveate.errors import FoveateError
from foveate.evaluation import MissingExtraError, Split
from foveate.evaluation.drawing.colours import COLOURS
from foveate.evaluation.drawing.figures import SHAPES
from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.scenes import kinds
from foveate.evaluation.drawing.wording import PRINTED, vocabulary
from foveate.evaluation.extras import import_extra, package_file, package_folder
from foveate.evaluation.resources import digits, made_up_words, photographs, words
from foveate.evaluation.splits import split_of
from foveate.evaluation.topics import SUBJECTS
from foveate.evaluation.typefaces import load_font, typefaces

both_sides = pytest.mark.parametrize("split", list(Split))


def font_files(split):
    return {
        hashlib.sha256(package_file(face.package, path).read_bytes()).hexdigest()
        for face in typefaces(split)
        for path in (face.regular, face.bold)
    }


def digit_pixels(split):
    return {picture.tobytes() for pictures in digits(split).values() for picture in pictures}


def subjects(split):
    return {subject for group in SUBJECTS[split].values() for subject in group}


@pytest.mark.parametrize(
    "resource",
    [
        lambda split: set(words(split)),
        font_files,
        lambda split: {face.name for face in typefaces(split)},
        digit_pixels,
        lambda split: {picture.tobytes() for picture in photographs(split)},
        lambda split: set(kinds(split)),
        subjects,
    ],
    ids=["words", "fonts", "font families", "digits", "photographs", "coloured shapes", "subjects"],
)
def test_the_two_sides_share_nothing(resource):
    training, test = resource(Split.TRAINING), resource(Split.TEST)
    assert training
    assert test
    assert training.isdisjoint(test)


def test_there_are_thousands_of_words_to_learn_and_hundreds_to_be_tested_on():
    assert len(words(Split.TRAINING)) >= 2000
    assert len(words(Split.TEST)) >= 500


@both_sides
def test_words_have_three_to_ten_small_letters(split):
    assert all(re.fullmatch("[a-z]{3,10}", word) for word in words(split))


@both_sides
def test_every_shape_and_every_colour_is_on_both_sides(split):
    assert {kind.shape for kind in kinds(split)} == set(SHAPES)
    assert {kind.colour for kind in kinds(split)} == set(COLOURS)


def test_both_sides_together_have_every_coloured_shape():
    assert len(kinds(Split.TRAINING)) + len(kinds(Split.TEST)) == len(SHAPES) * len(COLOURS)


@both_sides
def test_every_digit_is_there_at_least_25_times(split):
    assert {digit: len(pictures) >= 25 for digit, pictures in digits(split).items()} == dict.fromkeys(range(10), True)


def test_the_side_of_a_key_is_the_same_on_every_machine():
    keys = ("word abacus", "word able", "word absolute", "word anchor", "word quilt", "word vixen", "word zebra")
    assert [key for key in keys if split_of(key, 15) is Split.TEST] == ["word absolute", "word quilt"]


@pytest.mark.parametrize(("percent", "split"), [(0, Split.TRAINING), (100, Split.TEST)])
def test_none_or_all_keys_fall_on_the_side_of_tests_at_the_bounds(percent, split):
    assert {split_of(str(number), percent) for number in range(200)} == {split}


@both_sides
def test_every_font_has_its_own_glyph_for_each_character_that_is_printed(split):
    printed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$.,:/-()@"
    for face in typefaces(split):
        for bold in (False, True):
            font = load_font(face, bold, 40)
            characters = {}
            for character in printed:
                characters.setdefault((bytes(font.getmask(character)), font.getbbox(character)), []).append(character)
            alike = [same for same in characters.values() if len(same) > 1]
            assert alike in ([], [["l", "I"]]), (face.name, bold)
            assert font.getlength(" ") > 0


def test_made_up_words_are_for_training_alone_and_none_is_a_word_of_either_side():
    made_up = set(made_up_words())
    assert len(made_up) == len(made_up_words()) == 30_000
    assert not made_up & {*words(Split.TRAINING), *words(Split.TEST)}
    assert all(re.fullmatch("[a-z]{3,10}", word) for word in made_up)
    assert made_up < set(vocabulary(Split.TRAINING))
    assert vocabulary(Split.TEST) == words(Split.TEST)


@both_sides
def test_what_is_printed_are_words_of_that_side(split):
    allowed = set(vocabulary(split))
    random = Random(1)
    for _ in range(40):
        assert set(PRINTED["phrase"](random, split).lower().split()) <= allowed
        page = choose_page(random, split)
        headings = [section.heading for section in page.sections]
        assert set(" ".join([page.title, *headings, *page.lines]).lower().split()) <= allowed
        assert {item.name.lower() for item in choose_form(random, split).items} <= allowed


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("xkcdpass", lambda: words.__wrapped__(Split.TEST)),
        ("sklearn", lambda: digits.__wrapped__(Split.TEST)),
        ("skimage", lambda: photographs.__wrapped__(Split.TEST)),
        ("font_lato", lambda: load_font.__wrapped__(typefaces(Split.TEST)[0], False, 20)),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, module, use):
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module}.* pip install 'foveate\[eval\]'"):
        use()


def test_a_package_without_the_file_that_is_read_is_named_with_the_command_that_updates_it():
    with pytest.raises(
        MissingExtraError, match=r"xkcdpass has no file static/no-such-list.*--upgrade 'foveate\[eval\]'"
    ):
        package_file("xkcdpass", "static/no-such-list")


@pytest.mark.parametrize("find", [package_folder, import_extra])
def test_a_missing_package_can_be_caught_as_an_error_of_foveate_and_of_importing(find):
    with pytest.raises(FoveateError) as raised:
        find("no_such_package_as_this")
    assert isinstance(raised.value, ImportError)

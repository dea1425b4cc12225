"""The words, handwritten digits and photographs that ship in Python packages, split once and for all.

Everything is read on first use and kept: the values never change, and a training run asks for them at every example.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Final

from PIL import Image, ImageOps

from foveate.evaluation.extras import import_extra, package_file
from foveate.evaluation.splits import Split, split_of

__all__ = ["digits", "made_up_words", "photographs", "words"]

_WORD: Final = re.compile(r"[a-z]{3,10}")
_WORDS_FOR_TESTS_PERCENT: Final = 15
_MADE_UP_WORDS: Final = 30_000
_DIGITS_FOR_TESTS_PERCENT: Final = 20

_WORDS_OF_QUESTIONS: Final = """
    add address amount arrow balance bank black blue book booking bottom brown card cash change circle city code
    color colour company cross customer date department digit discount document due email first form green heading heart
    image invoice item left letter line list middle name number orange order page paid paper phone picture pink price
    print purple read receipt red registration right ring room second shape square star street subtotal sum tax text
    time title top total triangle white word yellow
"""
"""Left out of the drawn words, so that no drawn word can be taken for a part of a question or for a printed label."""

_WORDS_NOT_TO_SHOW: Final = """
    arousal backstab boozy bust enslave fondling gigolo grope handgun impotence impotency impotent lust lustfully
    lustily lustiness lusty manhood mating opium ovary pantyhose prozac seduce seducing strangle thong unclothed
    undress unisexual whoopee womanhood womb
"""
"""Left out because drawn pictures are shown to people."""

_PHOTOGRAPHS: Final = {
    Split.TRAINING: ("brick.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png"),
    Split.TEST: ("grass.png", "moon.png", "rocket.jpg"),
}
"""None shows a person, an animal or a simple shape, about which a question could be asked."""
_PHOTOGRAPH_SIDE_PIXELS: Final = 640


@cache
def words(split: Split) -> tuple[str, ...]:
    """Return the English words of one side, sorted: 3 to 10 letters a to z, from the long list of the EFF.

    Raises:
        MissingExtraError: xkcdpass, which ships the list, is not installed.

    """
    listed = package_file("xkcdpass", "static/eff-long").read_text(encoding="utf-8").split()
    usable = {word for word in listed if _WORD.fullmatch(word)}
    usable.difference_update(_WORDS_OF_QUESTIONS.split(), _WORDS_NOT_TO_SHOW.split())
    return tuple(sorted(word for word in usable if split_of(f"word {word}", _WORDS_FOR_TESTS_PERCENT) is split))


@cache
def made_up_words() -> tuple[str, ...]:
    """Return words for training that nobody uses, sorted: the head of one word and the tail of another.

    Whoever learns to read from the same few thousand words learns to guess at those. No word of the list is among them.
    """
    random, parts, found = Random("made up"), words(Split.TRAINING), set[str]()
    listed = {*parts, *words(Split.TEST)}
    while len(found) < _MADE_UP_WORDS:
        head, tail = random.choice(parts), random.choice(parts)
        word = head[: random.randint(1, len(head))] + tail[random.randrange(len(tail)) :]
        if _WORD.fullmatch(word) and word not in listed:
            found.add(word)
    return tuple(sorted(found))


@cache
def digits(split: Split) -> Mapping[int, tuple[Image.Image, ...]]:
    """Return the handwritten digits of one side: for 0 to 9 its pictures, each 8x8, mode L, ink white on black.

    Raises:
        MissingExtraError: scikit-learn, which ships them, is not installed.

    """
    loaded = import_extra("sklearn.datasets").load_digits()
    found: dict[int, list[Image.Image]] = defaultdict(list)
    for index, (pixels, digit) in enumerate(zip(loaded.images, loaded.target, strict=True)):
        if split_of(f"digit {index}", _DIGITS_FOR_TESTS_PERCENT) is split:
            levels = bytes(min(255, int(level) * 16) for row in pixels for level in row)
            found[int(digit)].append(Image.frombytes("L", (8, 8), levels))
    return MappingProxyType({digit: tuple(found[digit]) for digit in sorted(found)})


@cache
def photographs(split: Split) -> tuple[Image.Image, ...]:
    """Return the photographs of one side: mode L, each 640x640, stretched to the whole range of levels.

    Raises:
        MissingExtraError: scikit-image, which ships them, is not installed.

    """
    return tuple(_photograph(name) for name in _PHOTOGRAPHS[split])


def _photograph(name: str) -> Image.Image:
    with Image.open(package_file("skimage", f"data/{name}")) as image:
        side = _PHOTOGRAPH_SIDE_PIXELS
        return ImageOps.autocontrast(ImageOps.fit(image.convert("L"), (side, side)), cutoff=2)

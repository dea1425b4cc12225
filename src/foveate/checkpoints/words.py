"""The words of the tokenizer: common English ones, and pronounceable ones that mean nothing."""

import math
import re
from collections.abc import Iterator

__all__ = ["COMMON_WORDS", "SPACE", "filler_merges", "is_word", "syllables"]

SPACE = "Ġ"
"""How byte-level tokenizers write a space."""

_CONSONANTS = "bdfghjklmnprstvwz"
_VOWELS = "aeiou"
_ENDINGS = "nrslt"
_INVENTED_WORD = re.compile(f"{SPACE}([{_CONSONANTS}][{_VOWELS}])+[{_ENDINGS}]?")

_COMMON_WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were all her she there would their we him been has when who will no more if out so up said what "
    "its about than into them can only other time new some could these two may first then do any like my now over "
    "such our man me even most made after also did many off before must well back through years where much your way "
    "down should because long each just those people take day good how little use see work great here both under "
    "picture image photo photograph shows showing see look looking left right top bottom middle behind front next "
    "near between above below inside outside around small large big tall short old young red blue green yellow black "
    "white orange purple brown pink gray dark light bright clear color colour shape round square circle triangle line "
    "person woman child girl boy face hand hands head eye eyes hair standing sitting walking holding wearing smiling "
    "dog cat bird horse cow sheep fish tree trees flower flowers grass leaf sky cloud clouds sun moon water river sea "
    "lake beach mountain snow road street car truck bus train bicycle boat plane house building window door wall roof "
    "bridge table chair room kitchen bed lamp book paper page word words text letter number sign screen button menu "
    "name title chart graph map food plate bowl cup glass bottle bread fruit apple banana cake cheese what where "
    "describe read count answer question tell find many several few three four five six seven eight nine ten"
)
COMMON_WORDS = tuple(_COMMON_WORDS.split())
"""Ordered roughly by use; each is encoded as one token where the vocabulary has room."""
_COMMON_WORD_SET = frozenset(COMMON_WORDS)


def is_word(token: str) -> bool:
    """Whether a token reads as a word: a space, and a common word or syllables."""
    is_common = token.startswith(SPACE) and token.removeprefix(SPACE) in _COMMON_WORD_SET
    return is_common or _INVENTED_WORD.fullmatch(token) is not None


def syllables() -> Iterator[str]:
    """Every consonant followed by every vowel: 85 syllables."""
    for vowel in _VOWELS:
        for consonant in _CONSONANTS:
            yield consonant + vowel


def filler_merges() -> Iterator[tuple[str, str]]:
    """Pairs to merge into words of two syllables, then with an ending, then of three syllables: 657,475 in all.

    Both halves of a pair are tokens by the time it is yielded, and no other merge can come between them: a syllable
    is merged first wherever it occurs, so a word is always built from its beginning, syllable by syllable.
    """
    parts = list(syllables())
    two = [(SPACE + first, second) for first, second in _shuffled_pairs(parts, parts)]
    yield from two
    words = ["".join(pair) for pair in two]
    yield from _shuffled_pairs(words, list(_ENDINGS))
    yield from _shuffled_pairs(words, parts)


def _shuffled_pairs(left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """Every pair once, stepping through the table by a fixed stride so that neighbours do not sound alike."""
    size = len(left) * len(right)
    stride = int(size * 0.618)
    while math.gcd(stride, size) != 1:
        stride += 1
    for step in range(size):
        place = step * stride % size
        yield left[place // len(right)], right[place % len(right)]

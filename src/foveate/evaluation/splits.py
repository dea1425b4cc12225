"""Which words, digits, photographs and coloured shapes are for training, and which are kept for tests."""

import hashlib
from enum import StrEnum

__all__ = ["Split", "split_of"]


class Split(StrEnum):
    """The side on which an example is drawn. The two sides share no word, font, photograph, digit or coloured shape."""

    TRAINING = "training"
    TEST = "test"


def split_of(key: str, test_percent: int) -> Split:
    """Return the side of `key`, the same on every machine and in every Python.

    About `test_percent` of all keys, 0 to 100, fall on the side of the tests. The choice depends on the key alone, so a
    later edition of a list with more entries moves none of the old ones.
    """
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return Split.TEST if number % 100 < test_percent else Split.TRAINING

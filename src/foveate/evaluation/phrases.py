"""The little grammar that questions and answers need."""

from collections.abc import Sequence
from random import Random

__all__ = ["listed", "plural", "with_article", "worded"]


def worded(random: Random, wordings: Sequence[str], **slots: str) -> str:
    """Return one of the wordings with its slots filled in."""
    return random.choice(wordings).format(**slots)


def with_article(noun: str) -> str:
    """Return "a star" for "star", "an arrow" for "arrow"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def plural(noun: str) -> str:
    """Return "stars" for "star", "crosses" for "cross"."""
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def listed(parts: Sequence[str]) -> str:
    """Return "a, b and c" for three parts."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

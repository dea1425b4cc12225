"""Special tokens in text: kept apart from what a user wrote, whatever the user wrote.

Before the chat template sees a user's text, every special token spelled out in it is broken by a character that no text
may hold; after the template has run, its own special tokens are whole and are found as such. The broken ones are
mended when their text is encoded, as ordinary text.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from foveate.errors import PromptError

# A non-character, which no text may interchange, is written into the middle of a broken special token.
_BREAK = "\ufdd0"


class SpecialText:
    """Finds and breaks the special tokens of one tokenizer."""

    def __init__(self, tokens: Mapping[str, Any]) -> None:
        """`tokens`: for each special token's text, the tokenizer's `AddedToken`, or None where it has none."""
        self._tokens = frozenset(tokens)
        longest_first = sorted(tokens, key=len, reverse=True)
        self._with_blanks = re.compile("|".join(_pattern_of(text, tokens[text]) for text in longest_first))
        # Looking ahead finds those that overlap, too.
        self._starts = re.compile(f"(?={'|'.join(map(re.escape, longest_first))})")

    def broken(self, texts: Sequence[str]) -> list[str]:
        """Return a user's texts with every special token broken, also one that begins in a text and ends in another.

        A template may write the texts one after another. Raises PromptError on text that is not Unicode.
        """
        texts = [_checked(text) for text in texts]
        # A break after the first character of each special token, wherever it begins in all the texts joined.
        places = [match.start() + 1 for match in self._starts.finditer("".join(texts))]
        ends = accumulate((len(text) for text in texts), initial=0)
        return [
            _with_breaks(text, start, places[bisect_right(places, start) : bisect_right(places, end)])
            for text, (start, end) in zip(texts, pairwise(ends), strict=True)
        ]

    def broken_within(self, value: Any) -> Any:
        """Return a value of JSON with every special token in its texts broken."""
        if isinstance(value, str):
            return self.broken([value])[0]
        if isinstance(value, Mapping):
            return {self.broken_within(key): self.broken_within(each) for key, each in value.items()}
        return [self.broken_within(each) for each in value] if isinstance(value, list | tuple) else value

    def split(self, rendered: str) -> list[str]:
        """Split what a template wrote into special tokens and the texts between them, with the blanks that a token eats
        taken off."""
        pieces, end = [], 0
        for match in self._with_blanks.finditer(rendered):
            # No group in the pattern: with one, Python's search tries every token at every character.
            token = match[0] if match[0] in self._tokens else match[0].strip()
            pieces += [rendered[end : match.start()], token]
            end = match.end()
        return [piece for piece in (*pieces, rendered[end:]) if piece]


def mended(text: str) -> str:
    """Return text as the user wrote it, without the breaks."""
    return text.replace(_BREAK, "")


def _checked(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptError("the text holds a lone surrogate, which is not a character; send valid Unicode") from None
    return text.replace(_BREAK, "\ufffd")


def _with_breaks(text: str, start: int, places: Sequence[int]) -> str:
    """`places` count characters from `start` before the text."""
    cuts = (0, *(place - start for place in places), len(text))
    return _BREAK.join(text[begin:end] for begin, end in pairwise(cuts))


def _pattern_of(text: str, token: Any) -> str:
    before = r"\s*" if getattr(token, "lstrip", False) else ""
    after = r"\s*" if getattr(token, "rstrip", False) else ""
    return before + re.escape(text) + after

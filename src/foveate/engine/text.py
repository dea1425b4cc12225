"""Tokens → text, piece by piece: never half a character, never a part of a stop text."""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE = "\ufffd"


class TextStream:
    """Gathers an answer's tokens. The pieces joined are the decoded answer, cut before the first stop text."""

    def __init__(self, decode: Decode, stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._pending: list[int] = []
        self._given_of_pending = 0
        self._held = ""
        self.is_stopped = False

    def push(self, token: int) -> str:
        """Take one more token and return the text that is certain by now, perhaps none."""
        if self.is_stopped:
            return ""
        self._pending.append(token)
        text = self._decode(self._pending)
        # An unfinished character decodes to one replacement mark at the end; all before it is settled.
        settled = len(text) - 1 if text.endswith(_INCOMPLETE) else len(text)
        new = text[self._given_of_pending : settled]
        self._given_of_pending = max(self._given_of_pending, settled)
        if settled == len(text):
            self._pending, self._given_of_pending = [], 0
        return self._release(new)

    def finish(self) -> str:
        """Return what was held back, now that nothing follows."""
        rest = self._decode(self._pending)[self._given_of_pending :] if self._pending else ""
        self._pending = []
        if self.is_stopped:
            return ""
        text = self._release(rest)
        if not self.is_stopped:
            text, self._held = text + self._held, ""
        return text

    def _release(self, new: str) -> str:
        text = self._held + new
        found = [index for index in (text.find(stop) for stop in self._stop) if index >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)

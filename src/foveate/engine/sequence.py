"""One answer in the making."""

from collections.abc import Collection

from foveate.config import SamplingParams
from foveate.engine.answer import FinishReason
from foveate.engine.text import Decode, TextStream


class Sequence:
    """The tokens of an answer so far, their text, and when they end."""

    def __init__(self, params: SamplingParams, *, decode: Decode, stop_token_ids: Collection[int]) -> None:
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._stop_token_ids = frozenset() if params.ignore_stop_tokens else frozenset(stop_token_ids)
        self._stream = TextStream(decode, params.stop)
        self._pieces: list[str] = []

    @property
    def is_finished(self) -> bool:
        """Whether no token will follow."""
        return self.finish_reason is not None

    @property
    def text(self) -> str:
        """The text given out so far."""
        return "".join(self._pieces)

    def add(self, token: int) -> str:
        """Take the next token; returns the text that became certain, perhaps none."""
        self.token_ids.append(token)
        is_stop_token = token in self._stop_token_ids
        piece = "" if is_stop_token else self._stream.push(token)
        if is_stop_token or self._stream.is_stopped:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self._params.max_tokens:
            self.finish_reason = "length"
        if self.is_finished:
            piece += self._stream.finish()
            if self._stream.is_stopped:
                self.finish_reason = "stop"
        self._pieces.append(piece)
        return piece

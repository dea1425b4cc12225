"""Conversations answered together, for callers who wait: an iterator over the pieces of all of them."""

import queue
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.encoding import EncoderReport
from foveate.engine.engine import Engine
from foveate.engine.preparation import Prepared
from foveate.engine.request import Cancelled, Event, Failed, Finished, TextPiece
from foveate.errors import CancelledError, UnfinishedError


@dataclass(frozen=True)
class Piece:
    """Some text of one of the answers that are generated together."""

    index: int
    """Which answer."""
    text: str
    """Text that follows what was given before; may be empty."""


class Generation:
    """Answers being generated together. Iterating runs them; each gets the result it would have alone.

    An error in one ends all. Whoever stops iterating cancels what is left.
    """

    def __init__(
        self,
        engine: Engine,
        prepared: Items[Prepared],
        params: Items[SamplingParams],
        *,
        keeps_first_logits: bool = False,
    ) -> None:
        """Raises PromptError for a prompt that could never fit."""
        for each, param in zip(prepared, params, strict=True):
            engine.check(each, param)
        self._engine, self._prepared, self._params = engine, list(prepared), list(params)
        self._keeps_first_logits = keeps_first_logits
        self._is_started = False
        self._num_tokens = [0] * len(self._prepared)
        self._finished: dict[int, Finished] = {}

    @property
    def first_logits(self) -> Tensor | None:
        """`[conversations, vocab_size]` float32: the scores of each first token, where they were asked for."""
        rows = [self._finished[index].first_logits for index in range(len(self._prepared)) if index in self._finished]
        known = [row for row in rows if row is not None]
        return torch.stack(known) if len(known) == len(self._prepared) else None

    @property
    def encoder_report(self) -> EncoderReport | None:
        """What the encoder ran for the first conversation that had pictures."""
        reports = (finished.answer.encoder for finished in self._finished.values())
        return next((report for report in reports if report is not None), None)

    def answers(self) -> list[Answer]:
        """Return the finished answers; UnfinishedError when they were not generated to their ends."""
        for index, count in enumerate(self._num_tokens):
            if index not in self._finished:
                raise UnfinishedError(
                    f"this answer has {count} tokens and no end: it was not generated, or was interrupted; ask again"
                )
        return [self._finished[index].answer for index in range(len(self._prepared))]

    def __iter__(self) -> Iterator[Piece]:
        if self._is_started:
            raise ValueError("these answers have been generated already; start others")
        self._is_started = True
        return self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
        requests = []
        try:
            for index, (prepared, params) in enumerate(zip(self._prepared, self._params, strict=True)):
                sink = partial(_put, events, index)
                requests.append(
                    self._engine.submit(
                        prepared, params, sink, keeps_first_logits=self._keeps_first_logits, is_bounded=False
                    )
                )
            while len(self._finished) < len(requests):
                index, event = events.get()
                if isinstance(event, TextPiece):
                    self._num_tokens[index] += 1
                    yield Piece(index, event.text)
                elif isinstance(event, Finished):
                    self._finished[index] = event
                elif isinstance(event, Failed):
                    raise event.error
                elif isinstance(event, Cancelled):
                    raise CancelledError("this answer was cancelled")
        finally:
            for index, request in enumerate(requests):
                if index not in self._finished:
                    self._engine.cancel(request)


def _put(events: "queue.SimpleQueue[tuple[int, Event]]", index: int, event: Event) -> None:
    events.put((index, event))

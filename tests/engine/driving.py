"""Engines driven by hand: who listens, what was heard, and how to wait without sleeping."""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import foveate
from foveate.engine.encoding import EagerImageEncoder, EncodedImages
from foveate.engine.engine import Engine
from foveate.engine.request import Cancelled, Event, Failed, Finished, Request, TextPiece
from foveate.engine.settings import EngineSettings
from foveate.models.lfm2_vl.image_batch import ImageBatch

PATIENCE_S = 60
"""Longer than anything takes; whoever waits so long has found a request without an end."""


def on_and_on(count: int, **params: Any) -> foveate.SamplingParams:
    return foveate.SamplingParams(max_tokens=count, ignore_stop_tokens=True, **params)


def text(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": words}]


def show(*pictures: Any, words: str = "What is this?") -> list[dict[str, Any]]:
    images = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*images, {"type": "text", "text": words}]}]


def engine_of(vlm: foveate.VLM, encoder: Any = None, **settings: Any) -> Engine:
    """An engine of its own on a loaded model, with small caches."""
    chosen = EngineSettings(**{"cache_megabytes": 8.0, **settings})
    return Engine(vlm.model, vlm.processor, encoder or EagerImageEncoder(vlm.model.encoder), chosen)


def settle(engine: Engine) -> None:
    """Wait until the engine has done with all that it was told before."""
    done = threading.Event()
    engine._worker.inbox.put(done.set)
    assert done.wait(PATIENCE_S)


def is_all_free(engine: Engine) -> bool:
    """Whether no request holds a page, a slot or a place in the queue."""
    settle(engine)
    pool, stats = engine._memory.pool, engine.stats
    has_all = (pool.num_free_pages, pool.num_free_slots) == (pool.num_pages, pool.num_slots)
    return has_all and (stats.waiting, stats.running) == (0, 0) and not engine._worker.requests


@dataclass
class Listener:
    """Hears the events of one request; ends are checked to be ends."""

    events: list[Event] = field(default_factory=list)
    end: Event | None = None
    request: Request | None = None
    _arrivals: "queue.SimpleQueue[Event]" = field(default_factory=queue.SimpleQueue)

    def __call__(self, event: Event) -> None:
        self._arrivals.put(event)

    def next(self) -> Event:
        """Wait for one more event."""
        event = self._arrivals.get(timeout=PATIENCE_S)
        assert self.end is None, f"{event} after {self.end}"
        self.events.append(event)
        if not isinstance(event, TextPiece):
            self.end = event
        return event

    def wait(self) -> Event:
        """Wait for the end."""
        while self.end is None:
            self.next()
        return self.end

    def is_silent(self) -> bool:
        """Whether nothing came that was not taken."""
        return self._arrivals.empty()

    def answer(self) -> foveate.Answer:
        """Wait for the end, which is an answer."""
        end = self.wait()
        if isinstance(end, Failed):
            raise end.error
        assert isinstance(end, Finished), end
        assert end.answer.text == "".join(event.text for event in self.events if isinstance(event, TextPiece))
        return end.answer

    def error(self) -> BaseException:
        """Wait for the end, which is an error."""
        end = self.wait()
        assert isinstance(end, Failed), end
        return end.error

    def is_cancelled(self) -> bool:
        """Wait for the end and tell whether it is the one that was asked for."""
        return isinstance(self.wait(), Cancelled)


def ask(engine: Engine, messages: Any, params: foveate.SamplingParams | None = None, **options: Any) -> Listener:
    """Hand in a conversation."""
    listener = Listener()
    listener.request = engine.submit(messages, params or on_and_on(8), listener, **options)
    return listener


class GatedEncoder:
    """Encodes when it is allowed to, and remembers how many pictures each call had."""

    def __init__(self, vlm: foveate.VLM) -> None:
        self._encoder = EagerImageEncoder(vlm.model.encoder)
        self.calls: list[int] = []
        self.bounds: list[float | None] = []
        self.entered, self.may_go_on = threading.Event(), threading.Event()

    def encode(self, batch: ImageBatch, most_ms: float | None = None) -> EncodedImages:
        self.calls.append(len(batch.tiles_per_image))
        self.bounds.append(most_ms)
        self.entered.set()
        assert self.may_go_on.wait(PATIENCE_S)
        return self._encoder.encode(batch, most_ms)


class PickyEncoder:
    """Raises when a batch holds a black picture."""

    def __init__(self, vlm: foveate.VLM) -> None:
        self._encoder = EagerImageEncoder(vlm.model.encoder)
        self.calls: list[int] = []

    def encode(self, batch: ImageBatch, most_ms: float | None = None) -> EncodedImages:
        self.calls.append(len(batch.tiles_per_image))
        parts: Sequence[torch.Tensor] = batch.patches.split([tile.num_patches for tile in batch.tiles])
        if any(bool((part == -1).all()) for part in parts):
            raise RuntimeError("a black picture")
        return self._encoder.encode(batch, most_ms)

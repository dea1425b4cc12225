"""The engine's one thread: it owns the device, and everything in the engine but the inbox."""

import logging
import queue
import threading
import time
from collections.abc import Callable

import torch

from foveate.engine.image_stage import EncoderCall, ImageStage
from foveate.engine.launcher import Launched, Launcher
from foveate.engine.memory import EngineMemory
from foveate.engine.preparation import Prepared
from foveate.engine.request import Cancelled, Failed, Finished, Request, Stage
from foveate.engine.scheduler import Scheduler
from foveate.engine.streams import DeviceStreams
from foveate.errors import ClosedError, NumbersError

logger = logging.getLogger(__name__)

Message = Callable[[], None]


class Worker:
    """In each turn: receives messages, lets requests in, launches what goes on, and reads what has come.

    Invariants: a request hears one end and nothing after it; what it had goes back to the pool in the same turn.
    """

    def __init__(
        self,
        memory: EngineMemory,
        scheduler: Scheduler,
        images: ImageStage,
        launcher: Launcher,
        streams: DeviceStreams,
        device: torch.device,
        *,
        steps_ahead: int,
        replay_ms: float,
        left_queue: Callable[[Request], None],
    ) -> None:
        """`replay_ms` is how long one replay of an encoder graph may take while others are answered. `left_queue` is
        called when a request no longer waits."""
        self._memory, self._scheduler, self._images = memory, scheduler, images
        self._launcher, self._streams, self._device = launcher, streams, device
        self._steps_ahead, self._replay_ms, self._left_queue = steps_ahead, replay_ms, left_queue
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        """Messages are run on this thread."""
        self.lock = threading.Lock()
        """To be held by whoever sends a request in: once `is_closed` is set under it, none comes any more."""
        self.is_closed = False
        self.requests: set[Request] = set()
        """Those that have not ended."""
        self._call: EncoderCall | None = None
        self._in_flight: list[Launched] = []
        self._is_stopping = False

    def run(self) -> None:
        """Turn until stopped; then, or when the engine itself fails, end whatever is left."""
        fault = ClosedError("the engine was closed before this answer was finished")
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        with torch.inference_mode(), self._streams.decode():
            try:
                while not self._is_stopping:
                    self._turn()
            except BaseException as error:
                logger.exception("the engine has failed and answers nothing more")
                fault = ClosedError(f"the engine has failed: {error!r}")
            with self.lock:
                self.is_closed = True
            for _ in range(self.inbox.qsize()):
                self.inbox.get_nowait()()
            for request in list(self.requests):
                self._end(request, Failed(fault))

    # Messages

    def arrive(self, request: Request) -> None:
        """Take note of a new request."""
        self.requests.add(request)

    def prepared(self, request: Request, prepared: Prepared) -> None:
        """Queue a request whose pictures and prompt are ready."""
        if not request.is_ended:
            request.prepared = prepared
            self._scheduler.add(request)

    def fail(self, request: Request, error: BaseException) -> None:
        """End a request with an error."""
        self._end(request, Failed(error))

    def cancel(self, request: Request) -> None:
        """End a request because its sender asked for that; too late is no error."""
        self._end(request, Cancelled())

    def stop(self) -> None:
        """End with this turn."""
        self._is_stopping = True

    # A turn

    def _turn(self) -> None:
        self._receive()
        self._admit()
        self._encode()
        launched, faults = self._launcher.launch()
        unread, self._in_flight = (self._in_flight, launched) if self._steps_ahead else (launched, [])
        for each in unread:
            self._read(each)
        for requests, error in faults:
            for request in requests:
                self._end(request, Failed(error))

    def _receive(self) -> None:
        has_work = self._in_flight or self._scheduler.running or self._scheduler.waiting
        if not has_work:
            self.inbox.get()()
        for _ in range(self.inbox.qsize()):
            self.inbox.get_nowait()()

    def _admit(self) -> None:
        for request in self._scheduler.admit():
            assert request.memory is not None
            self._left_queue(request)
            request.clock.add("waiting", (time.perf_counter() - request.queued_s) * 1e3)
            self._memory.slots.set(request.memory, request.params, request.prompt.token_ids)
            if not request.prompt.images:
                request.stage = Stage.PREFILLING

    def _encode(self) -> None:
        if self._call is not None:
            self._collect(self._call)
        if self._call is None:
            batch = self._scheduler.encoder_batch()
            if batch:
                most_ms = self._replay_ms if self._scheduler.decodable() else None
                self._call = self._images.launch(batch, most_ms)
                for request, error in self._call.faults:
                    self._end(request, Failed(error))
                self._collect(self._call)

    def _collect(self, call: EncoderCall) -> None:
        """Let the requests of a call go on: when it is over, or at once behind it if nobody else has work to do."""
        if not call.span.is_over:
            if self._in_flight or self._scheduler.prefill_shares() or self._scheduler.decodable():
                return
            call.span.wait_on_device()
        for request in call.requests:
            if not request.is_ended:
                request.clock.add_span("encode", call.span)
                request.stage = Stage.PREFILLING
        self._call = None

    def _read(self, launched: Launched) -> None:
        """Hand out the tokens of a step. Those of requests that have ended meanwhile are one too many."""
        launched.span.wait()
        for request in launched.requests:
            request.clock.add(launched.stage, launched.span.milliseconds)
        tokens = [] if launched.tokens is None else launched.tokens.tolist()
        for request, token in zip(launched.takers, tokens, strict=True):
            if not request.is_ended:
                self._hand_out(request, token)

    def _hand_out(self, request: Request, token: int) -> None:
        if token < 0:
            self._end(request, Failed(_not_numbers()))
            return
        try:
            request.take(token)
        except Exception as error:  # of the tokenizer; it is this request's own
            self._end(request, Failed(error))
        if request.is_ended:
            self._forget(request)

    def _end(self, request: Request, event: Finished | Failed | Cancelled) -> None:
        request.end(event)
        self._forget(request)

    def _forget(self, request: Request) -> None:
        self._left_queue(request)
        self._scheduler.remove(request)
        self.requests.discard(request)


def _not_numbers() -> NumbersError:
    return NumbersError(
        "the model's scores are not numbers (NaN or infinite): its weights are damaged, or its type is too small for"
        " them; try dtype float32"
    )

"""Requests in, streams of text out: continuous batching in one process."""

import os
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import torch

from foveate.config import SamplingParams
from foveate.engine.clock import StageClock
from foveate.engine.decoder import Decoder, Progress, StepBackend, step_backend
from foveate.engine.encoding import ImageFeatureEncoder
from foveate.engine.image_cache import ImageCache
from foveate.engine.image_stage import ImageStage
from foveate.engine.launcher import Launcher
from foveate.engine.memory import allocate
from foveate.engine.prefill import Prefill
from foveate.engine.prefill_graphs import PrefillGraphs
from foveate.engine.preparation import Preparation, Prepared
from foveate.engine.preparing import PreparingThreads
from foveate.engine.request import Request, Sink, Stage
from foveate.engine.scheduler import Scheduler
from foveate.engine.sequence import Sequence as AnswerSequence
from foveate.engine.settings import EngineSettings
from foveate.engine.stats import EngineStats
from foveate.engine.streams import DeviceStreams
from foveate.engine.worker import Worker
from foveate.errors import ClosedError, ConfigurationError, OverloadedError, PromptError
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor

Messages = Sequence[dict[str, Any]]

_SECONDS_TO_CLOSE = 30.0
_SWITCH_SECONDS = 5e-4
"""How long a thread of this process may go on in Python while another waits, instead of Python's 5 ms: a decode step
takes less than one, and its thread asks for its turn again after every call that it makes on the device."""


class Engine:
    """Answers requests as they come. Every method may be called from any thread.

    One thread owns the device; a pool of a few reads and cuts pictures beside it. Both end with `close`, with the
    process, or when nobody holds the engine any more.
    """

    def __init__(
        self,
        model: Lfm2VlModel,
        processor: Processor,
        encoder: ImageFeatureEncoder,
        settings: EngineSettings | None = None,
        *,
        backend: StepBackend | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Allocate the caches and record the decode steps; raises ConfigurationError where there is no room.

        `progress` is called with the number of steps recorded so far and in all.
        """
        self.settings = settings or EngineSettings()
        self._process = os.getpid()
        self._model, self._processor, device = model, processor, model.device
        self.cache = ImageCache(int(self.settings.image_cache_megabytes * 1e6))
        self._preparation = Preparation(processor, self.cache, device, _image_options(model, processor))
        self._memory = allocate(model, self.settings)
        pool, slots = self._memory.pool, self._memory.slots
        backend = backend or step_backend(device)
        decoder = Decoder(model, pool.tensors, slots, backend)
        decoder.record(progress)
        graphs = None
        if backend.name != "direct":  # called, not replayed, a graph would be padding for nothing
            graphs = PrefillGraphs(model, pool.tensors, slots, backend, self.settings.prefill_tokens_per_step)
            graphs.record(progress)
        streams = DeviceStreams(device)
        steps_ahead = int(device.type == "cuda") if self.settings.steps_ahead is None else self.settings.steps_ahead
        self._scheduler = Scheduler(pool, self.settings)
        self._queued, self._arrivals = set[Request](), count()
        self._worker = Worker(
            self._memory,
            self._scheduler,
            ImageStage(encoder, self.cache, streams, device),
            Launcher(self._scheduler, Prefill(model, pool, slots, graphs), decoder, device),
            streams,
            device,
            steps_ahead=steps_ahead,
            replay_ms=self.settings.encoder_replay_ms,
            left_queue=self._queued.discard,
        )
        self._threads = ThreadPoolExecutor(self.settings.pixel_threads, thread_name_prefix="foveate-pixels")
        self._preparing = PreparingThreads(self._preparation, self._threads)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # The engine's streams do not wait for what was done on this one.
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._thread = threading.Thread(target=self._worker.run, name="foveate-engine", daemon=True)
        self._thread.start()
        # The thread holds the worker and not the engine, so an engine that is forgotten can end its thread.
        self._finalizer = weakref.finalize(self, _shut_down, self._worker, self._thread, self._threads)

    def prepare(self, messages: Messages) -> Prepared:
        """Read the pictures of a conversation and make its prompt, on the caller's thread.

        Raises ImageError or PromptError on one that cannot be answered, whatever the parameters.
        """
        return self._preparation.prepare(messages)

    def check(self, prepared: Prepared, params: SamplingParams) -> None:
        """Raise PromptError where a prompt and the longest answer to it could never fit."""
        prompt, bound = len(prepared.token_ids), self._model.config.language.max_positions
        room = self._memory.pool.num_pages * self._memory.pool.tensors.page_tokens
        told = f"the prompt has {prompt} tokens and max_tokens is {params.max_tokens}; together they may be at most"
        if prompt + params.max_tokens > bound:
            raise PromptError(f"{told} {bound} (max_position_embeddings): shorten the prompt or lower max_tokens")
        if prompt + params.max_tokens > room:
            raise PromptError(
                f"{told} {room}, which is all the caches hold: shorten the prompt, lower max_tokens, or give the caches"
                " more memory (cache_megabytes or cache_fraction)"
            )

    def submit(
        self,
        conversation: Messages | Prepared,
        params: SamplingParams,
        sink: Sink,
        *,
        keeps_first_logits: bool = False,
        is_bounded: bool = True,
    ) -> Request:
        """Hand in a conversation, prepared or not; what becomes of it is told to `sink`, ending with exactly one of
        Finished, Failed and Cancelled.

        Raises ClosedError when the engine is closed or belongs to the process that this one was forked from,
        OverloadedError when `max_waiting` requests wait already (unless `is_bounded` is false, for callers that bound
        themselves), and what `check` raises for a prepared conversation.
        Whatever is wrong with one that is not prepared comes as Failed.
        """
        if not isinstance(params, SamplingParams):
            raise ConfigurationError(f"params is {params!r:.80}; give SamplingParams")
        sequence = AnswerSequence(
            params, decode=self._processor.decode, stop_token_ids=self._model.config.stop_token_ids
        )
        request = Request(
            params,
            sink,
            sequence,
            self._model.config.image_token_id,
            StageClock(self._model.device),
            keeps_first_logits,
        )
        if isinstance(conversation, Prepared):
            self.check(conversation, params)
        if os.getpid() != self._process:
            raise ClosedError(
                f"this engine runs in process {self._process}, of which this one is a copy without its threads: load"
                " the model after the fork"
            )
        with self._worker.lock:
            if self._worker.is_closed:
                raise ClosedError("the engine is closed, or has failed; make another")
            if is_bounded and len(self._queued) >= self.settings.max_waiting:
                raise OverloadedError(
                    f"{len(self._queued)} requests are waiting, and max_waiting is {self.settings.max_waiting}:"
                    " ask again later"
                )
            request.arrival = next(self._arrivals)
            self._queued.add(request)
            self._worker.inbox.put(partial(self._worker.arrive, request))
            if isinstance(conversation, Prepared):
                self._worker.inbox.put(partial(self._worker.prepared, request, conversation))
            else:
                is_wanted = partial(_is_preparing, request)
                self._preparing.submit(conversation, is_wanted, partial(self._hand_over, request))
        return request

    def cancel(self, request: Request) -> None:
        """Give a request up, whatever its stage; all that it had is free soon. Too late is no error."""
        self._worker.inbox.put(partial(self._worker.cancel, request))

    @property
    def stats(self) -> EngineStats:
        """What the engine is doing now."""
        pool, cache = self._memory.pool, self.cache
        return EngineStats(
            waiting=len(self._queued),
            running=len(self._scheduler.running),
            free_pages=pool.num_free_pages,
            pages=pool.num_pages,
            page_tokens=pool.tensors.page_tokens,
            image_cache_bytes=cache.num_bytes,
            image_cache_hits=cache.hits,
            image_cache_misses=cache.misses,
        )

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._worker.is_closed

    def close(self) -> None:
        """Take no more requests, end those under way with ClosedError, and end the threads. May be repeated."""
        with self._worker.lock:
            self._worker.is_closed = True
        self._finalizer()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hand_over(self, request: Request, made: Prepared | BaseException) -> None:
        """Tell the worker what became of a preparation."""
        try:
            if isinstance(made, BaseException):
                raise made
            self.check(made, request.params)
        except BaseException as error:
            self._worker.inbox.put(partial(self._worker.fail, request, error))
        else:
            self._worker.inbox.put(partial(self._worker.prepared, request, made))


def _is_preparing(request: Request) -> bool:
    return request.stage is Stage.PREPARING


def _shut_down(worker: Worker, thread: threading.Thread, threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    worker.inbox.put(worker.stop)
    if thread is not threading.current_thread():
        thread.join(_SECONDS_TO_CLOSE)


def _image_options(model: Lfm2VlModel, processor: Processor) -> str:
    """Return all that decides the features of a picture beside its bytes."""
    config = model.config
    decoder = getattr(processor.pictures, "decoder", None)
    how = f"{type(processor.pictures).__name__} {decoder.name if decoder else 'cpu'}"
    return f"{config.vision} {config.projector} {config.images} {config.language.hidden_size} {model.dtype} {how}"

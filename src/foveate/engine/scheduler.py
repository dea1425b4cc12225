"""Which requests go on, and with how much. Host work alone; knows pages and slots, but no tensor.

A request is let in when there is a slot and pages for its prompt and the longest answer it may get, so what was let in
can always go on to its end. First come, first served among those that fit: while the first one waits for memory, later
ones that fit may go before it, but only so many.
"""

import time
from collections.abc import Callable

from foveate.engine.caches import CachePool
from foveate.engine.request import Request, Stage
from foveate.engine.settings import EngineSettings


class Scheduler:
    """Keeps the requests that are waiting and those that run, in the order in which they came."""

    def __init__(self, pool: CachePool, settings: EngineSettings) -> None:
        self._pool, self._settings = pool, settings
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Queue a request that is prepared; it keeps the place that its arrival gave it."""
        request.stage, request.queued_s = Stage.WAITING, time.perf_counter()
        self.waiting.append(request)
        self.waiting.sort(key=lambda each: each.arrival)

    def admit(self) -> list[Request]:
        """Give pages and a slot to those whose turn it is."""
        admitted = []
        for request in list(self.waiting):
            first = self.waiting[0]
            if not self._pool.can_open(request.most_tokens):
                if self._pool.num_free_slots == 0 or first.overtakes >= self._settings.max_overtakes:
                    break
                continue
            if request is not first:
                if first.overtakes >= self._settings.max_overtakes:
                    break
                first.overtakes += 1
            self.waiting.remove(request)
            request.memory = self._pool.open(request.most_tokens)
            request.stage = Stage.ENCODING
            self.running.append(request)
            admitted.append(request)
        return admitted

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it is, and everything it had back."""
        for requests in (self.waiting, self.running):
            if request in requests:
                requests.remove(request)
        if request.memory is not None:
            self._pool.close(request.memory)
            request.memory = None
        request.features = None

    def restart(self, request: Request) -> None:
        """Have a prompt run from its beginning again, in steps of its own."""
        assert request.memory is not None
        self._pool.restart(request.memory)
        request.prefilled, request.prefills_alone = 0, True

    def in_stage(self, stage: Stage) -> list[Request]:
        """Return the running requests of a stage, in the order of their admission."""
        return [request for request in self.running if request.stage is stage]

    def encoder_batch(self) -> list[Request]:
        """Return requests whose pictures are to be encoded in one call; at least one if any is there."""
        return _up_to(
            self._settings.images_per_encode, self.in_stage(Stage.ENCODING), lambda each: len(each.prompt.images)
        )

    def prefill_shares(self) -> list[tuple[Request, int]]:
        """Return whose prompts run next, and how many tokens of each."""
        left = self._settings.prefill_tokens_per_step
        shares: list[tuple[Request, int]] = []
        for request in self.in_stage(Stage.PREFILLING):
            if left == 0 or (request.prefills_alone and shares):
                break
            tokens = min(left, request.unprefilled)
            shares.append((request, tokens))
            left -= tokens
            if request.prefills_alone:
                break
        return shares

    def decodable(self) -> list[Request]:
        """Return those that go one token further."""
        return [each for each in self.in_stage(Stage.DECODING) if each.launched < each.params.max_tokens]


def _up_to(most: int, requests: list[Request], size: Callable[[Request], int]) -> list[Request]:
    """Return the first requests whose sizes add up to at most `most`, and the very first one whatever its size."""
    chosen: list[Request] = []
    total = 0
    for request in requests:
        total += size(request)
        if chosen and total > most:
            break
        chosen.append(request)
    return chosen

"""Threads that prepare conversations beside the engine's own; those that wait share what costs less for several."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from foveate.engine.preparation import Preparation, Prepared
from foveate.errors import ClosedError

Heard = Callable[[Prepared | BaseException], None]
"""Takes what became of a conversation, once."""


@dataclass(frozen=True)
class _Job:
    messages: Sequence[dict[str, Any]]
    is_wanted: Callable[[], bool]
    heard: Heard


class PreparingThreads:
    """Prepares in the order of asking. What is still waiting when the threads are shut down is not heard of again."""

    def __init__(self, preparation: Preparation, threads: ThreadPoolExecutor) -> None:
        self._preparation, self._threads = preparation, threads
        self._waiting: deque[_Job] = deque()

    def submit(self, messages: Sequence[dict[str, Any]], is_wanted: Callable[[], bool], heard: Heard) -> None:
        """Prepare a conversation, unless `is_wanted` says no when its turn comes."""
        self._waiting.append(_Job(messages, is_wanted, heard))
        # One call for each job, though a call may take several: then a later one finds nothing to do.
        self._threads.submit(self._prepare_some)

    def _prepare_some(self) -> None:
        jobs = [job for job in self._take() if _is_wanted(job)]
        made = iter(self._preparation.prepare_each([job.messages for job in jobs]))
        for job in jobs:
            try:
                job.heard(next(made))
            except BaseException as error:  # whatever it is, somebody waits for this one and for those behind it
                job.heard(error)

    def _take(self) -> Iterable[_Job]:
        for _ in range(self._preparation.most_at_once):
            try:
                yield self._waiting.popleft()
            except IndexError:
                return


def _is_wanted(job: _Job) -> bool:
    if job.is_wanted():
        return True
    job.heard(ClosedError("nobody waits for this any more"))
    return False

"""Milliseconds of each stage of a request, without making the host wait for the device."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StageClock:
    """Adds up the time of named stages. Device stages are timed by events on CUDA, by the host's clock elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._host_ms: dict[str, float] = {}
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def host(self, stage: str) -> Iterator[None]:
        """Time work that is done when the block ends."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._host_ms[stage] = self._host_ms.get(stage, 0.0) + (time.perf_counter() - start) * 1e3

    @contextmanager
    def device(self, stage: str) -> Iterator[None]:
        """Time work that the block has given to the device."""
        if not self._on_cuda:
            with self.host(stage):
                yield
            return
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        try:
            yield
        finally:
            end.record()
            self._events.append((stage, start, end))

    def milliseconds(self) -> dict[str, float]:
        """Return the total of each stage, in the order in which they were first used; waits for the device."""
        totals = dict(self._host_ms)
        for stage, start, end in self._events:
            end.synchronize()
            totals[stage] = totals.get(stage, 0.0) + start.elapsed_time(end)
        return totals

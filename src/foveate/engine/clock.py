"""Milliseconds of each stage of a request, without making the host wait for the device."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Span:
    """A stretch of work given to a device: timed by events on CUDA, by the host's clock elsewhere. Begins when made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._event() if device.type == "cuda" else None
        self._end: torch.cuda.Event | None = None
        self._host_start, self._host_end = time.perf_counter(), 0.0

    def stop(self) -> None:
        """End it where the host is now in giving out work."""
        self._host_end = time.perf_counter()
        self._end = self._event() if self._start is not None else None

    @property
    def is_over(self) -> bool:
        """Whether the device has done the work."""
        return self._end is None or bool(self._end.query())

    def wait(self) -> None:
        """Make the host wait until the device has done the work."""
        if self._end is not None:
            self._end.synchronize()

    def wait_on_device(self) -> None:
        """Make the current stream wait until the work is done."""
        if self._end is not None:
            torch.cuda.current_stream(self._device).wait_event(self._end)

    @property
    def milliseconds(self) -> float:
        """What it took; waits for the device."""
        if self._start is None or self._end is None:
            return (self._host_end - self._host_start) * 1e3
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end))

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


class StageClock:
    """Adds up the time of named stages."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host_ms: dict[str, float] = {}
        self._spans: list[tuple[str, Span]] = []

    def add(self, stage: str, milliseconds: float) -> None:
        """Add time that was measured elsewhere."""
        self._host_ms[stage] = self._host_ms.get(stage, 0.0) + milliseconds

    def add_span(self, stage: str, span: Span) -> None:
        """Add what a span takes; the device need not be there yet."""
        self._spans.append((stage, span))

    @contextmanager
    def host(self, stage: str) -> Iterator[None]:
        """Time work that is done when the block ends."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, (time.perf_counter() - start) * 1e3)

    @contextmanager
    def device(self, stage: str) -> Iterator[None]:
        """Time work that the block has given to the device."""
        span = Span(self._device)
        try:
            yield
        finally:
            span.stop()
            self.add_span(stage, span)

    def milliseconds(self) -> dict[str, float]:
        """Return the total of each stage; waits for the device."""
        totals = dict(self._host_ms)
        for stage, span in self._spans:
            totals[stage] = totals.get(stage, 0.0) + span.milliseconds
        return totals

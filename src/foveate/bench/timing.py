"""Times calls in turn, host work included, waiting for the device after every call."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Calls = Mapping[str, Callable[[], Any]]


def time_rounds(
    calls: Calls, *, rounds: int, warm_ups: int = 4, progress: Callable[[int], None] | None = None
) -> dict[str, list[float]]:
    """Call each in turn, `rounds` times after the warm-ups; returns the milliseconds of every round by name.

    In turn, so that a card that slows down under load slows all of them, and rounds can be compared pair by pair.
    `progress` is told of every round done.
    """
    for _ in range(warm_ups):
        for call in calls.values():
            call()
    synchronize()
    times_ms: dict[str, list[float]] = {name: [] for name in calls}
    for done in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            synchronize()
            times_ms[name].append((time.perf_counter() - start) * 1e3)
        if progress:
            progress(done + 1)
    return times_ms


def time_interleaved(calls: Calls, *, rounds: int = 30, warm_ups: int = 4) -> dict[str, dict[str, float]]:
    """Do the same; returns the summary of each."""
    return {name: summary(times) for name, times in time_rounds(calls, rounds=rounds, warm_ups=warm_ups).items()}


def synchronize() -> None:
    """Wait for the CUDA device, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def summary(values_ms: list[float]) -> dict[str, float]:
    """Return median, 95th percentile and least of some milliseconds."""
    ordered = sorted(values_ms)
    p95 = ordered[round(0.95 * (len(ordered) - 1))]
    return {"median_ms": round(statistics.median(ordered), 4), "p95_ms": round(p95, 4), "min_ms": round(ordered[0], 4)}


def paired_ratio(ours_ms: list[float], theirs_ms: list[float]) -> float:
    """Return the median over the rounds of our time divided by theirs in the same round."""
    return statistics.median(ours / theirs for ours, theirs in zip(ours_ms, theirs_ms, strict=True))


def relative_error(ours: Tensor, reference: Tensor) -> float:
    """Return the relative norm of the difference."""
    return float((ours.float() - reference.float()).norm() / reference.float().norm())

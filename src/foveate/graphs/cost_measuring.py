"""Measures what the planner chooses between: a run in each graph, and eager runs of a few sizes."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Generic

import torch

from foveate.graphs.costs import MeasuredCosts
from foveate.graphs.measuring import reserved_bytes, time_ms
from foveate.graphs.plan import Plan
from foveate.graphs.planner import eager_plan
from foveate.graphs.protocol import Batch, BudgetRange, GraphCapacity, SupportsEncoderCudaGraph

FEWEST_ROUNDS, MOST_ROUNDS = 3, 7
LONGEST_S = 1.2
"""No round begins after this, once there are enough: the measurement is part of every first start."""
MOST_SPREAD = 1.15
"""How far the median of a run's times may lie above its least, for half of the runs, before other work is held to have
disturbed them. On an H200 with one process they stay below."""


class CostMeasurement(Generic[Batch]):
    """Times runs as `execute` makes them, copies included: in turn and by size, so that a card that slows down under
    load slows replays and eager runs of like sizes alike; medians, so that one disturbed run is none."""

    def __init__(
        self,
        model: SupportsEncoderCudaGraph[Batch],
        device: torch.device,
        encode: Callable[[Batch, Plan], object],
        inputs_per_token: int,
    ) -> None:
        """`encode` runs a batch by a plan."""
        self._model, self._device, self._encode = model, device, encode
        self._inputs_per_token = inputs_per_token

    def measure(self, capacities: Sequence[GraphCapacity]) -> tuple[MeasuredCosts, bool]:
        """Measure these graphs, of which there is at least one; waits for the device after every run.

        Returns the costs, and whether other work disturbed them.
        """
        largest = max(capacity.tokens for capacity in capacities)
        replays = {capacity.tokens: partial(self._replay, capacity) for capacity in capacities}
        sizes = eager_sizes(self._model.get_encoder_cudagraph_budget_range(), largest)
        eager = {tokens: partial(self._eager, tokens) for tokens in self._that_fit(sizes)}
        runs = sorted([*replays.items(), *eager.items()], key=itemgetter(0), reverse=True)
        times: dict[Callable[[], float], list[float]] = {run: [] for _, run in runs}
        start = time.perf_counter()
        for done in range(MOST_ROUNDS):
            if done >= FEWEST_ROUNDS and time.perf_counter() - start > LONGEST_S:
                break
            for run, values in times.items():
                values.append(run())
        reserved_bytes(self._device)  # gives back what eager runs cached for batches that may never be so large
        medians = {run: statistics.median(values) for run, values in times.items()}
        costs = MeasuredCosts(
            {budget: medians[run] for budget, run in replays.items()},
            tuple((tokens, medians[run]) for tokens, run in eager.items()),
        )
        return costs, self._device.type == "cuda" and is_disturbed(times.values())

    def _that_fit(self, sizes: Iterable[int]) -> list[int]:
        """Run each size once, which also warms it up; sizes for which the card has no memory are left out."""
        fitting: list[int] = []
        for tokens in sizes:
            try:
                self._eager(tokens)
            except torch.OutOfMemoryError:
                if not fitting:
                    raise
                break
            fitting.append(tokens)
        return fitting

    def _replay(self, capacity: GraphCapacity) -> float:
        batch = self._model.prepare_encoder_cudagraph_capture_inputs(capacity, seed=4)
        whole = eager_plan(self._model.get_encoder_cudagraph_item_specs(batch), "cheaper")
        return self._time(batch, Plan(tuple(run.in_graph(capacity.tokens) for run in whole.runs)))

    def _eager(self, tokens: int) -> float:
        capacity = GraphCapacity(tokens, tokens * self._inputs_per_token, tokens, tokens)
        batch = self._model.prepare_encoder_cudagraph_capture_inputs(capacity, seed=4)
        return self._time(batch, eager_plan(self._model.get_encoder_cudagraph_item_specs(batch), "cheaper"))

    def _time(self, batch: Batch, plan: Plan) -> float:
        def work() -> None:
            self._encode(batch, plan)

        return time_ms(self._device, work)


def is_disturbed(times: Iterable[Sequence[float]]) -> bool:
    """Whether the times of most runs differ by more than a device does that has nothing else to do."""
    return statistics.median(statistics.median(values) / min(values) for values in times) > MOST_SPREAD


def eager_sizes(span: BudgetRange, largest: int) -> tuple[int, ...]:
    """Return the tokens of the eager runs to measure: the smallest, whose time is that of the launches, some full
    tiles, the largest graph's and what lies half way, and twice and four times that, where each token costs its
    arithmetic."""
    some = min(4 * span.step, largest)
    return tuple(sorted({span.smallest, some, (some + largest) // 2, largest, 2 * largest, 4 * largest}))

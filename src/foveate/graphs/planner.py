"""Which tiles of a batch go into which graph, decided on the host before the first launch."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Protocol

from foveate.graphs.flat_batch import FlatBatch
from foveate.graphs.plan import EagerReason, Plan, PlannedRun
from foveate.graphs.protocol import EncoderItemSpec, GraphCapacity


class ReplayCost(Protocol):
    """The cost of one replay, in any unit; what the planner makes small."""

    def __call__(self, budget: int) -> float:
        """Return the cost of replaying the graph of `budget` tokens."""


@dataclass(frozen=True)
class LinearCost:
    """A replay costs its rows, padding included, plus a fixed part for its launches."""

    fixed_tokens: float = 160.0
    """The fixed part, as the number of tokens that would take as long: so a batch is cut only to save more than that.
    """

    def __call__(self, budget: int) -> float:
        """Return the cost in tokens."""
        return self.fixed_tokens + budget


class Planner:
    """Finds the cheapest cover of a batch by replays of neighbouring tiles; of two that cost the same, the one with
    fewer replays.

    Neighbours only: rows then stay in order, so what goes in and what comes out are plain slices.
    """

    def __init__(self, capacities: Sequence[GraphCapacity], cost: ReplayCost | None = None) -> None:
        self._capacities = sorted(capacities, key=lambda capacity: capacity.tokens)
        self._budgets = [capacity.tokens for capacity in self._capacities]
        cost = cost or LinearCost()
        costs = self._costs = [cost(budget) for budget in self._budgets]
        count = len(costs)
        # For each graph: itself and the larger ones, cheapest first.
        self._at_least = [sorted(range(first, count), key=costs.__getitem__) for first in range(count)]

    def plan(self, specs: Sequence[EncoderItemSpec]) -> Plan:
        """Plan a batch; a tile that fits no graph runs eagerly, with its neighbours of that kind."""
        if not self._capacities:
            return eager_plan(specs, "graphs_switched_off")
        batch = FlatBatch.of(specs)
        runs: list[PlannedRun] = []
        for fits, first, end in self._blocks(batch):
            if fits:
                runs += self._cover(batch, first, end)
            else:
                runs.append(batch.run(first, end, None, "tile_exceeds_every_budget"))
        return Plan(tuple(runs))

    def _blocks(self, batch: FlatBatch) -> Iterator[tuple[bool, int, int]]:
        """Cut where tiles that fit a graph and tiles that fit none meet; yields (whether they fit, first, end)."""

        def fits(tile: int) -> bool:
            return self._cheapest_fit(batch, tile, tile + 1) is not None

        for fitting, tiles in groupby(range(batch.num_tiles), key=fits):
            block = list(tiles)
            yield fitting, block[0], block[-1] + 1

    def _cover(self, batch: FlatBatch, start: int, stop: int) -> list[PlannedRun]:
        # cost[end], replays[end]: the least of the tiles up to end; came_from[end]: where its last run begins;
        # graph_of[end]: the graph of that run. Lists and locals, because this loop is host time before every launch.
        count = batch.num_tiles + 1
        cost, replays = [inf] * count, [0] * count
        came_from, graph_of = [start] * count, [0] * count
        cost[start], costs, cheapest_fit = 0.0, self._costs, self._cheapest_fit
        for first in range(start, stop):
            so_far, runs_so_far = cost[first], replays[first] + 1
            for end in range(first + 1, stop + 1):
                graph = cheapest_fit(batch, first, end)
                if graph is None:
                    break
                candidate = so_far + costs[graph]
                if candidate < cost[end] or (candidate == cost[end] and runs_so_far < replays[end]):
                    cost[end], replays[end], came_from[end], graph_of[end] = candidate, runs_so_far, first, graph
        runs: list[PlannedRun] = []
        while stop > start:
            first = came_from[stop]
            runs.append(batch.run(first, stop, self._budgets[graph_of[stop]]))
            stop = first
        return runs[::-1]

    def _cheapest_fit(self, batch: FlatBatch, first: int, end: int) -> int | None:
        smallest = bisect_left(self._budgets, batch.tokens[end] - batch.tokens[first])
        if smallest == len(self._budgets):
            return None
        for graph in self._at_least[smallest]:  # the first nearly always fits
            if batch.fit(first, end, self._capacities[graph]):
                return graph
        return None


def eager_plan(specs: Sequence[EncoderItemSpec], reason: EagerReason) -> Plan:
    """Return the plan that runs a whole batch eagerly."""
    batch = FlatBatch.of(specs)
    return Plan((batch.run(0, batch.num_tiles, None, reason),) if batch.num_tiles else ())

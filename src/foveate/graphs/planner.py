"""Which tiles of a batch go into which graph, decided on the host before the first launch."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
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
        # best[end]: the least (cost, replays) of the tiles up to end; reached_by[end]: where its last run begins, and
        # the graph of that run.
        best = {start: (0.0, 0)}
        reached_by: dict[int, tuple[int, int]] = {}
        for first in range(start, stop):
            cost, replays = best[first]
            for end in range(first + 1, stop + 1):
                graph = self._cheapest_fit(batch, first, end)
                if graph is None:
                    break
                candidate = (cost + self._costs[graph], replays + 1)
                if end not in best or candidate < best[end]:
                    best[end], reached_by[end] = candidate, (first, graph)
        runs: list[PlannedRun] = []
        while stop > start:
            first, graph = reached_by[stop]
            runs.append(batch.run(first, stop, self._budgets[graph]))
            stop = first
        return runs[::-1]

    def _cheapest_fit(self, batch: FlatBatch, first: int, end: int) -> int | None:
        smallest = bisect_left(self._budgets, batch.num_tokens(first, end))
        if smallest == len(self._budgets):
            return None
        return next(
            (graph for graph in self._at_least[smallest] if batch.fit(first, end, self._capacities[graph])), None
        )


def eager_plan(specs: Sequence[EncoderItemSpec], reason: EagerReason) -> Plan:
    """Return the plan that runs a whole batch eagerly."""
    batch = FlatBatch.of(specs)
    return Plan((batch.run(0, batch.num_tiles, None, reason),) if batch.num_tiles else ())

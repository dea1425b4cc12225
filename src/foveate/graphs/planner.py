"""Which tiles of a batch go into which graph, decided on the host before the first launch."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

from foveate.graphs.protocol import EncoderItemSpec, GraphCapacity

EagerReason = Literal["tile_exceeds_every_budget", "graphs_switched_off", "modality_not_captured"]


@dataclass(frozen=True)
class PlannedRun:
    """Neighbouring tiles that run together."""

    first_tile: int
    """Index of the first tile, over the whole batch."""
    end_tile: int
    """Index behind the last."""
    tokens: int
    """Output rows of these tiles."""
    items: int
    """Items with tiles among these."""
    budget: int | None
    """Token budget of the graph that replays them; None means eagerly."""
    reason: EagerReason | None = None
    """Why they run eagerly; None for a replay."""

    @property
    def tiles(self) -> range:
        """The tiles, by index over the whole batch."""
        return range(self.first_tile, self.end_tile)

    @property
    def padded_tokens(self) -> int:
        """Output rows of the replay that belong to no tile."""
        return 0 if self.budget is None else self.budget - self.tokens


@dataclass(frozen=True)
class Plan:
    """How a batch runs. Invariant: the runs are in tile order, and every tile is in exactly one of them."""

    runs: tuple[PlannedRun, ...]

    @property
    def replays(self) -> tuple[PlannedRun, ...]:
        """The runs that replay a graph."""
        return tuple(run for run in self.runs if run.budget is not None)

    @property
    def eager_runs(self) -> tuple[PlannedRun, ...]:
        """The runs that do not."""
        return tuple(run for run in self.runs if run.budget is None)


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
    """Finds the cheapest cover of a batch by replays of neighbouring tiles.

    Neighbours only: rows then stay in order, so what goes in and what comes out are plain slices.
    """

    def __init__(self, capacities: Sequence[GraphCapacity], cost: ReplayCost | None = None) -> None:
        self._capacities = sorted(capacities, key=lambda capacity: capacity.tokens)
        self._budgets = [capacity.tokens for capacity in self._capacities]
        cost = cost or LinearCost()
        self._costs = [cost(budget) for budget in self._budgets]

    def plan(self, specs: Sequence[EncoderItemSpec]) -> Plan:
        """Plan a batch; a tile that exceeds every budget runs eagerly, with its neighbours of that kind."""
        if not self._capacities:
            return Plan(_eager(specs, "graphs_switched_off"))
        tokens = [tile.output_tokens for spec in specs for tile in spec.tiles]
        owner = [index for index, spec in enumerate(specs) for _ in spec.tiles]
        runs: list[PlannedRun] = []
        start = 0
        for end in _block_ends(tokens, self._budgets[-1]):
            if tokens[start] > self._budgets[-1]:
                runs.append(_run(tokens, owner, start, end, None, "tile_exceeds_every_budget"))
            else:
                runs += self._cover(tokens, owner, start, end)
            start = end
        return Plan(tuple(runs))

    def _cover(self, tokens: list[int], owner: list[int], start: int, end: int) -> list[PlannedRun]:
        # best[i] is the least cost of the tiles start..start + i; came_from and graph say how it was reached.
        count = end - start
        best = [0.0] + [float("inf")] * count
        came_from, graph = [0] * (count + 1), [0] * (count + 1)
        for first in range(count):
            total, items = 0, 0
            for last in range(first, count):
                total += tokens[start + last]
                items += last == first or owner[start + last] != owner[start + last - 1]
                index = self._smallest_fit(total, last - first + 1, items)
                if index is None:
                    break
                cost = best[first] + self._costs[index]
                if cost < best[last + 1]:
                    best[last + 1], came_from[last + 1], graph[last + 1] = cost, first, index
        runs: list[PlannedRun] = []
        at = count
        while at > 0:
            first = came_from[at]
            runs.append(_run(tokens, owner, start + first, start + at, self._budgets[graph[at]], None))
            at = first
        return runs[::-1]

    def _smallest_fit(self, tokens: int, tiles: int, items: int) -> int | None:
        index = bisect_left(self._budgets, tokens)
        while index < len(self._budgets):
            capacity = self._capacities[index]
            if tiles <= capacity.tiles and items <= capacity.items:
                return index
            index += 1
        return None


def eager_plan(specs: Sequence[EncoderItemSpec], reason: EagerReason) -> Plan:
    """Return the plan that runs a whole batch eagerly."""
    return Plan(_eager(specs, reason))


def _eager(specs: Sequence[EncoderItemSpec], reason: EagerReason) -> tuple[PlannedRun, ...]:
    tokens = [tile.output_tokens for spec in specs for tile in spec.tiles]
    owner = [index for index, spec in enumerate(specs) for _ in spec.tiles]
    return (_run(tokens, owner, 0, len(tokens), None, reason),) if tokens else ()


def _block_ends(tokens: list[int], largest: int) -> list[int]:
    """Cut where tiles that fit the largest budget and tiles that do not meet; returns the end of each block."""
    changes = [index for index, (a, b) in enumerate(pairwise(tokens), 1) if (a > largest) != (b > largest)]
    return [*changes, len(tokens)] if tokens else []


def _run(
    tokens: list[int], owner: list[int], first: int, end: int, budget: int | None, reason: EagerReason | None
) -> PlannedRun:
    return PlannedRun(first, end, sum(tokens[first:end]), len(set(owner[first:end])), budget, reason)

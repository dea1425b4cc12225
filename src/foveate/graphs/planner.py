"""Which tiles of a batch go into which graph, decided on the host before the first launch."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from math import inf
from operator import truediv
from typing import NamedTuple

from foveate.graphs.axes import Axis, GraphAxes, smallest_graphs
from foveate.graphs.costs import EncoderCosts, FixedCosts
from foveate.graphs.flat_batch import FlatBatch
from foveate.graphs.plan import EagerReason, Plan, PlannedRun
from foveate.graphs.protocol import EncoderItemSpec, GraphCapacity

MARGIN = 0.05
"""What more replays than need be must save, of the cost, to be taken: measured times differ by about that."""

ONE_REPLAY_MARGIN = 0.08
"""What eager execution must save in the place of a single replay, which leaves the host to others. Padding up to the
next of the automatic budgets comes to about that where the two compete, so that it alone sends hardly any such batch
back to the host."""

TIE_MS = 1e-9
"""What a replay is held to cost more, so that of covers with the same cost the one with fewer replays is cheaper."""


class Cover(NamedTuple):
    """A way to cover tiles by replays."""

    cost_ms: float
    """What it costs."""
    replays: list[tuple[int, int, int]]
    """(first tile, end tile, token budget) of each replay, in order."""


class Planner:
    """Finds the cheapest way to run a batch: replays of neighbouring tiles, or all of it eagerly.

    Fewer launches are preferred: more replays than need be are taken where they save more than 5 %, and eager execution
    where it saves more than 8 % of a single replay, if one would do, and is cheaper than several. Of covers with the
    same cost the one with fewer replays is the cheaper. Neighbours only: rows then stay in order, so what goes in and
    what comes out are plain slices.
    """

    def __init__(self, capacities: Sequence[GraphCapacity], costs: EncoderCosts | None = None) -> None:
        """Raises ValueError if a graph of more tokens holds less of anything else than a smaller one, or a cost is no
        number."""
        self._costs = costs or FixedCosts()
        ordered = sorted(capacities, key=lambda capacity: capacity.tokens)
        self._axes = GraphAxes(ordered) if ordered else None
        budgets = [each.tokens for each in ordered]
        prices = [self._costs.replay_ms(budget) for budget in budgets]
        for budget, price in zip(budgets, prices, strict=True):
            if not 0 <= price < inf:
                raise ValueError(f"a replay of {budget} tokens costs {price} ms; give a number from 0 on")
        # For each graph, by index: the cheapest of those that are at least as large, and its cost.
        self._budget_of, self._price_of = _cheapest_from(budgets, prices)
        # The same by the tokens that have to fit.
        self._price_at = [self._price_of[graph] for graph in smallest_graphs(budgets)]
        # Bounds from below, for any cover: of one replay, and of each token.
        self._least_ms = min(prices, default=0.0)
        self._least_ms_per_token = min(map(truediv, prices, budgets), default=0.0)

    def plan(self, specs: Sequence[EncoderItemSpec]) -> Plan:
        """Plan a batch; a tile that fits no graph runs eagerly, with its neighbours of that kind."""
        if self._axes is None:
            return eager_plan(specs, "graphs_switched_off")
        batch = FlatBatch.of(specs)
        axes = self._axes.of(batch)
        reach = [axis.reach(batch.num_tiles) for axis in axes]
        farthest = reach[0] if len(axes) == 1 else [min(ends) for ends in zip(*reach, strict=True)]
        runs: list[PlannedRun] = []
        cost_ms = 0.0
        for fits, first, end in _blocks(farthest):
            if fits:
                cover = self._cover(axes, farthest, first, end)
                runs += [batch.run(*replay) for replay in cover.replays]
                cost_ms += cover.cost_ms
            else:
                runs.append(batch.run(first, end, None, "tile_exceeds_every_budget"))
                cost_ms += self._costs.eager_ms(runs[-1].tokens)
        if farthest and farthest[0] == batch.num_tiles:
            one_replay = self._along([0, batch.num_tiles], axes)
            cost_ms = min(cost_ms, (1 - ONE_REPLAY_MARGIN) * one_replay.cost_ms)
        if self._costs.eager_ms(batch.tokens[-1]) < cost_ms:
            return Plan((batch.run(0, batch.num_tiles, None, "cheaper"),))
        return Plan(tuple(runs))

    def _cover(self, axes: list[Axis], reach: list[int], start: int, stop: int) -> Cover:
        fewest = self._with_fewest_replays(axes, reach, start, stop)
        tokens = axes[0].ends[stop] - axes[0].begins[start]
        at_least_ms = max(self._least_ms, tokens * self._least_ms_per_token)
        if at_least_ms >= (1 - MARGIN) * fewest.cost_ms:
            return fewest  # most large batches: the search, which takes longest for them, could not find a better one
        cheapest = self._cheapest(axes, reach, start, stop)
        if len(cheapest.replays) == len(fewest.replays):
            return cheapest
        if cheapest.cost_ms >= (1 - MARGIN) * fewest.cost_ms:
            return fewest
        # It does save that much, but perhaps not over the best of the covers that have the fewest replays.
        surcharge_ms = (stop - start) * max(self._price_of)
        fewest = self._cheapest(axes, reach, start, stop, surcharge_ms)
        return cheapest if cheapest.cost_ms < (1 - MARGIN) * fewest.cost_ms else fewest

    def _with_fewest_replays(self, axes: list[Axis], reach: list[int], start: int, stop: int) -> Cover:
        """Return a cover in which each replay takes as many tiles as the largest graph holds."""
        path = [start]
        while path[-1] < stop:
            path.append(min(reach[path[-1]], stop))
        return self._along(path, axes)

    def _cheapest(
        self, axes: list[Axis], reach: list[int], start: int, stop: int, surcharge_ms: float = TIE_MS
    ) -> Cover:
        """Return the cheapest cover where each replay costs `surcharge_ms` more than it does."""
        # The shortest path over the tiles. cost[end]: the least of the tiles up to end; came_from[end]: where its last
        # replay begins. Lists and locals, because this loop is host time before every launch.
        cost, came_from = [inf] * (stop + 1), [start] * (stop + 1)
        cost[start] = 0.0
        for first in range(start, stop):
            so_far = cost[first] + surcharge_ms
            for end, price in enumerate(self._prices(axes, first, min(reach[first], stop)), first + 1):
                candidate = so_far + price
                if candidate < cost[end]:
                    cost[end], came_from[end] = candidate, first
        path = [stop]
        while path[-1] > start:
            path.append(came_from[path[-1]])
        return self._along(path[::-1], axes)

    def _prices(self, axes: list[Axis], first: int, last: int) -> list[float]:
        """Return what one replay costs of the tiles from `first` up to each end, `first + 1` to `last`."""
        if len(axes) == 1:
            (tokens,), price_at = axes, self._price_at
            begin = tokens.begins[first]
            return [price_at[end - begin] for end in tokens.ends[first + 1 : last + 1]]
        return [
            self._price_of[max(axis.smallest_graph(first, end) for axis in axes)] for end in range(first + 1, last + 1)
        ]

    def _along(self, path: list[int], axes: list[Axis]) -> Cover:
        """Return the replays between neighbouring entries of `path`, each in its cheapest graph."""
        cost_ms, replays = 0.0, []
        for first, end in pairwise(path):
            graph = max(axis.smallest_graph(first, end) for axis in axes)
            cost_ms += self._price_of[graph]
            replays.append((first, end, self._budget_of[graph]))
        return Cover(cost_ms, replays)


def eager_plan(specs: Sequence[EncoderItemSpec], reason: EagerReason) -> Plan:
    """Return the plan that runs a whole batch eagerly."""
    batch = FlatBatch.of(specs)
    return Plan((batch.run(0, batch.num_tiles, None, reason),) if batch.num_tiles else ())


def _blocks(reach: Sequence[int]) -> Iterator[tuple[bool, int, int]]:
    """Cut where tiles that fit a graph and tiles that fit none meet; yields (whether they fit, first, end)."""
    first = 0
    for fits, tiles in groupby([end > tile for tile, end in enumerate(reach)]):
        end = first + len(list(tiles))
        yield fits, first, end
        first = end


def _cheapest_from(budgets: Sequence[int], prices: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return, for each graph, the cheapest of it and the larger ones, and its cost."""
    cheapest, least = list(budgets), list(prices)
    for graph in range(len(budgets) - 2, -1, -1):
        if least[graph + 1] < least[graph]:
            cheapest[graph], least[graph] = cheapest[graph + 1], least[graph + 1]
    return cheapest, least

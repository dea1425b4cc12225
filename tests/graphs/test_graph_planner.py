"""The planner: every tile exactly once, within every capacity, at the least cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.graphs import EncoderItemSpec, GraphCapacity, LinearCost, Plan, PlannedRun, Planner, ReplayCost, TileSpec

from .checks import MANY

TILES = st.builds(TileSpec, st.integers(1, 80), st.integers(1, 40), st.integers(0, 2))
SPECS = st.lists(st.lists(TILES, max_size=4).map(EncoderItemSpec.of), max_size=12)
CAPACITIES = st.lists(
    st.builds(
        GraphCapacity,
        st.integers(1, 90),
        st.integers(1, 200),
        st.integers(1, 8),
        st.integers(1, 6),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda capacity: capacity.tokens,
)


COSTS = st.sampled_from([LinearCost(), LinearCost(0.0), LinearCost(1e6)])


def tiles_of(specs: Sequence[EncoderItemSpec]) -> list[tuple[int, TileSpec]]:
    return [(item, tile) for item, spec in enumerate(specs) for tile in spec.tiles]


def fits(tiles: Sequence[tuple[int, TileSpec]], capacity: GraphCapacity) -> bool:
    return (
        sum(tile.output_tokens for _, tile in tiles) <= capacity.tokens
        and sum(tile.input_size for _, tile in tiles) <= capacity.input_rows
        and len(tiles) <= capacity.tiles
        and len({item for item, _ in tiles}) <= capacity.items
        and sum(tile.frames for _, tile in tiles) <= capacity.frames
    )


@MANY
@given(specs=SPECS, capacities=CAPACITIES, cost=COSTS)
def test_every_tile_runs_exactly_once_and_no_replay_exceeds_its_graph_on_any_axis(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], cost: ReplayCost
) -> None:
    plan, tiles = Planner(capacities, cost).plan(specs), tiles_of(specs)
    assert [tile for run in plan.runs for tile in run.tiles] == list(range(len(tiles)))
    graphs = {capacity.tokens: capacity for capacity in capacities}
    for run in plan.replays:
        assert run.budget is not None
        assert fits([tiles[tile] for tile in run.tiles], graphs[run.budget])


@MANY
@given(specs=SPECS, capacities=CAPACITIES)
def test_what_a_run_says_of_itself_is_the_sum_over_its_tiles(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity]
) -> None:
    tiles = tiles_of(specs)
    for run in Planner(capacities).plan(specs).runs:
        part = [tiles[tile] for tile in run.tiles]
        assert run.tokens == sum(tile.output_tokens for _, tile in part)
        assert run.input_rows == sum(tile.input_size for _, tile in part)
        assert run.items == len({item for item, _ in part})
        assert run.padded_tokens == (run.budget - run.tokens if run.budget else 0)


@MANY
@given(specs=SPECS, capacities=CAPACITIES)
def test_only_tiles_that_fit_no_graph_run_eagerly_and_all_of_those_do(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity]
) -> None:
    tiles = tiles_of(specs)
    misfits = [i for i, tile in enumerate(tiles) if not any(fits([tile], capacity) for capacity in capacities)]
    eager = Planner(capacities).plan(specs).eager_runs
    assert [tile for run in eager for tile in run.tiles] == misfits
    assert {run.reason for run in eager} <= {"tile_exceeds_every_budget"}


@dataclass(frozen=True)
class PriceList:
    """Costs that no formula gives: a larger graph may be the cheaper one, and many covers cost the same."""

    prices: tuple[int, ...]

    def __call__(self, budget: int) -> float:
        return float(self.prices[budget % len(self.prices)])


SMALL_TILES = st.builds(TileSpec, st.just(1), st.integers(1, 4))
SMALL_SPECS = st.lists(st.lists(SMALL_TILES, max_size=3).map(EncoderItemSpec.of), max_size=3)
SMALL_GRAPHS = st.lists(
    st.builds(GraphCapacity, st.integers(1, 10), st.just(9), st.integers(1, 4), st.integers(1, 3)),
    min_size=1,
    max_size=4,
    unique_by=lambda capacity: capacity.tokens,
)
PRICES = st.lists(st.integers(1, 4), min_size=3, max_size=7).map(lambda prices: PriceList(tuple(prices)))


@settings(MANY, max_examples=300)
@given(specs=SMALL_SPECS, capacities=SMALL_GRAPHS, cost=PRICES)
def test_no_other_cover_costs_less_or_costs_the_same_with_fewer_replays(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], cost: ReplayCost
) -> None:
    plan = Planner(capacities, cost).plan(specs)
    ours = sum(cost(run.budget or 0) for run in plan.replays), len(plan.replays)
    assert ours == cheapest(plan, specs, capacities, cost)


def cheapest(
    plan: Plan, specs: Sequence[EncoderItemSpec], capacities: Sequence[GraphCapacity], cost: ReplayCost
) -> tuple[float, int]:
    """Try every way to cut the tiles between eager runs into neighbours, and every graph for each."""
    tiles, total, replays = tiles_of(specs), 0.0, 0
    for block in blocks_between_eager_runs(plan, len(tiles)):
        ways = []
        for parts in compositions([tiles[tile] for tile in block]):
            costs = [[cost(each.tokens) for each in capacities if fits(part, each)] for part in parts]
            if all(costs):
                ways.append((sum(min(each) for each in costs), len(parts)))
        total, replays = total + min(ways)[0], replays + min(ways)[1]
    return total, replays


def blocks_between_eager_runs(plan: Plan, count: int) -> list[range]:
    eager = {tile for run in plan.eager_runs for tile in run.tiles}
    cuts = [0, *(i for i in range(1, count) if (i in eager) != (i - 1 in eager)), count]
    return [range(a, b) for a, b in pairwise(cuts) if a < b and a not in eager]


def compositions(tiles: list[tuple[int, TileSpec]]) -> Iterator[list[list[tuple[int, TileSpec]]]]:
    if not tiles:
        yield []
    for size in range(1, len(tiles) + 1):
        for rest in compositions(tiles[size:]):
            yield [tiles[:size], *rest]


@MANY
@given(specs=SPECS, capacities=CAPACITIES, cost=COSTS)
def test_a_plan_never_costs_more_than_one_replay_for_each_tile(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], cost: ReplayCost
) -> None:
    planner = Planner(capacities, cost)
    together = sum(cost(run.budget or 0) for run in planner.plan(specs).replays)
    alone = [planner.plan([EncoderItemSpec.of([tile])]).replays for _, tile in tiles_of(specs)]
    assert together <= sum(cost(runs[0].budget or 0) for runs in alone if runs) * (1 + 1e-12)


def test_a_batch_is_cut_only_where_that_saves_more_than_a_launch_costs() -> None:
    tiles = EncoderItemSpec.of([TileSpec(1280, 320)])
    graphs = [GraphCapacity(tokens, 4 * tokens, 32, 32) for tokens in (320, 2048)]
    plans = [Planner(graphs, LinearCost(fixed)).plan([tiles] * 5) for fixed in (100.0, 2048.0)]
    assert [[run.budget for run in plan.runs] for plan in plans] == [[320] * 5, [2048]]


def test_of_two_covers_that_cost_the_same_the_one_with_fewer_replays_is_taken() -> None:
    graphs = [GraphCapacity(7, 99, 4, 1), GraphCapacity(9, 99, 3, 3), GraphCapacity(5, 99, 2, 1)]
    cost = PriceList((0, 4, 0, 0, 0, 2, 0, 3))  # for 9, 5 and 7 tokens
    specs = [EncoderItemSpec.of([TileSpec(1, size) for size in sizes]) for sizes in ([4], [4, 2], [4, 3, 2], [4, 2, 4])]
    plan = Planner(graphs, cost).plan(specs)
    assert (sum(cost(run.budget or 0) for run in plan.replays), len(plan.replays)) == (14, 4)


def test_without_graphs_a_batch_is_one_eager_run_with_that_reason() -> None:
    spec = EncoderItemSpec.of([TileSpec(8, 4)])
    assert Planner(()).plan([spec, spec]).runs == (PlannedRun(0, 2, 8, 16, 2, None, "graphs_switched_off"),)
    assert Planner(()).plan([]).runs == ()


def test_a_run_that_exceeds_its_budget_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="a run of 5 tokens cannot replay the graph of 4 tokens"):
        PlannedRun(0, 1, 5, 10, 1, 4)


def test_the_totals_of_an_item_are_those_of_its_tiles() -> None:
    spec = EncoderItemSpec.of([TileSpec(8, 4), TileSpec(6, 3)])
    assert (spec.input_size, spec.output_tokens) == (14, 7)
    with pytest.raises(ValueError, match=r"14 input rows and 8 output tokens, but its tiles sum to 14 and 7"):
        replace(spec, output_tokens=8)


@pytest.mark.parametrize(("pictures", "tiles"), [(40, 1), (40, 11)])
def test_forty_pictures_are_planned_onto_few_replays_and_the_time_is_reported(
    pictures: int, tiles: int, record_property: Callable[[str, object], None]
) -> None:
    budgets = [*range(64, 513, 64), *range(640, 1025, 128), *range(1280, 2817, 256)]
    planner = Planner([GraphCapacity(tokens, 4 * tokens, tokens // 64, tokens // 64) for tokens in budgets])
    specs = [EncoderItemSpec.of([TileSpec(1024, 256)] * tiles)] * pictures
    start = time.perf_counter()
    plan = planner.plan(specs)
    record_property("planning_ms", (time.perf_counter() - start) * 1e3)
    assert len(plan.replays) == pictures * tiles // 11 + bool(pictures * tiles % 11)
    assert plan.eager_runs == ()

"""The planner: every tile exactly once, within every capacity, at a cost that no alternative beats by its margin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.graphs import (
    EncoderCosts,
    EncoderItemSpec,
    FixedCosts,
    GraphCapacity,
    MeasuredCosts,
    Plan,
    PlannedRun,
    Planner,
    TileSpec,
)
from foveate.graphs.planner import MARGIN, ONE_REPLAY_MARGIN

from .checks import MANY

TILES = st.builds(TileSpec, st.integers(1, 80), st.integers(1, 40), st.integers(0, 2))
SPECS = st.lists(st.lists(TILES, max_size=4).map(EncoderItemSpec.of), max_size=12)


def rising(*axes: tuple[int, int], most: int) -> st.SearchStrategy[list[GraphCapacity]]:
    """Up to `most` graphs; each axis begins between the two numbers and rises by no more than the second."""
    steps = st.tuples(*(st.integers(*axis) for axis in axes))
    more = st.tuples(st.integers(1, axes[0][1]), *(st.integers(0, high) for _, high in axes[1:]))
    return st.tuples(steps, st.lists(more, max_size=most - 1)).map(
        lambda drawn: [
            GraphCapacity(*sizes) for sizes in zip(*map(accumulate, zip(drawn[0], *drawn[1], strict=True)), strict=True)
        ]
    )


CAPACITIES = rising((1, 40), (1, 90), (1, 4), (1, 3), (0, 3), most=5)
COSTS = st.sampled_from([FixedCosts(), FixedCosts(fixed_ms=0.0), FixedCosts(fixed_ms=1e4)])


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
@given(specs=SPECS, capacities=CAPACITIES, costs=COSTS)
def test_every_tile_runs_exactly_once_and_no_replay_exceeds_its_graph_on_any_axis(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], costs: EncoderCosts
) -> None:
    plan, tiles = Planner(capacities, costs).plan(specs), tiles_of(specs)
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
    eager: int | None = None
    """Cost of any eager run; None for never."""

    def replay_ms(self, budget: int) -> float:
        return float(self.prices[budget % len(self.prices)])

    def eager_ms(self, tokens: int) -> float:
        return inf if self.eager is None or not tokens else float(self.eager)


SMALL_TILES = st.builds(TileSpec, st.just(1), st.integers(1, 4))
SMALL_SPECS = st.lists(st.lists(SMALL_TILES, max_size=3).map(EncoderItemSpec.of), max_size=3)
SMALL_GRAPHS = rising((1, 4), (9, 9), (1, 2), (1, 2), most=4)
PRICES = st.builds(
    PriceList, st.lists(st.integers(1, 40), min_size=3, max_size=7).map(tuple), st.none() | st.integers(1, 90)
)


@settings(MANY, max_examples=400)
@given(specs=SMALL_SPECS, capacities=SMALL_GRAPHS, costs=PRICES)
def test_no_way_to_run_a_batch_is_cheaper_by_more_than_the_margin_and_what_launches_more_saves_more_than_that(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], costs: PriceList
) -> None:
    graphs = Planner(capacities, replace(costs, eager=None)).plan(specs)
    covers = all_covers(specs, capacities, costs)
    if covers and not graphs.eager_runs:
        ours = cost_of(graphs, costs), len(graphs.replays)
        least, fewest = min(covers)[0], min(count for _, count in covers)
        assert (1 - MARGIN) * ours[0] <= least
        assert ours[1] == fewest or ours[0] < (1 - MARGIN) * min(ms for ms, count in covers if count == fewest)
        with_eager = Planner(capacities, costs).plan(specs)
        least = min([ours[0], *((1 - ONE_REPLAY_MARGIN) * ms for ms, count in covers if count == 1)])
        is_cheaper = costs.eager_ms(graphs.tokens) < least
        assert with_eager == graphs if not is_cheaper else [run.reason for run in with_eager.runs] == ["cheaper"]


def cost_of(plan: Plan, costs: EncoderCosts) -> float:
    return sum(costs.replay_ms(run.budget) for run in plan.replays if run.budget is not None)


def all_covers(
    specs: Sequence[EncoderItemSpec], capacities: Sequence[GraphCapacity], costs: EncoderCosts
) -> list[tuple[float, int]]:
    """Cost and number of replays of every way to cut the tiles into neighbours, each in the cheapest graph for it."""
    covers = []
    for parts in compositions(tiles_of(specs)):
        prices = [[costs.replay_ms(each.tokens) for each in capacities if fits(part, each)] for part in parts]
        if all(prices):
            covers.append((sum(min(each) for each in prices), len(parts)))
    return covers


def compositions(tiles: list[tuple[int, TileSpec]]) -> Iterator[list[list[tuple[int, TileSpec]]]]:
    if not tiles:
        yield []
    for size in range(1, len(tiles) + 1):
        for rest in compositions(tiles[size:]):
            yield [tiles[:size], *rest]


@MANY
@given(specs=SPECS, capacities=CAPACITIES, costs=COSTS)
def test_a_plan_never_costs_more_than_one_replay_for_each_tile_by_more_than_the_margin(
    specs: list[EncoderItemSpec], capacities: list[GraphCapacity], costs: EncoderCosts
) -> None:
    planner = Planner(capacities, costs)
    alone = [planner.plan([EncoderItemSpec.of([tile])]) for _, tile in tiles_of(specs)]
    assert (1 - MARGIN) * cost_of(planner.plan(specs), costs) <= sum(cost_of(plan, costs) for plan in alone)


FULL = EncoderItemSpec.of([TileSpec(1024, 256)])


def roomy(*budgets: int) -> list[GraphCapacity]:
    return [GraphCapacity(tokens, 4 * tokens, 32, 32) for tokens in budgets]


@pytest.mark.parametrize(("eager_ms", "budgets"), [(9.3, [1024]), (9.1, [None])])
def test_eager_execution_has_to_save_more_where_one_replay_would_do(eager_ms: float, budgets: list[int | None]) -> None:
    costs = MeasuredCosts({512: 6.0, 1024: 10.0}, ((1, eager_ms),))
    assert [run.budget for run in Planner(roomy(512, 1024), costs).plan([FULL] * 4).runs] == budgets
    costs = MeasuredCosts({512: eager_ms / 2, 1024: 99.0}, ((1, eager_ms + 0.01),))
    assert [run.budget for run in Planner(roomy(512, 1024), costs).plan([FULL] * 4).runs] == [512, 512]
    costs = MeasuredCosts(costs.replays, ((1, eager_ms - 0.01),))
    assert [run.budget for run in Planner(roomy(512, 1024), costs).plan([FULL] * 4).runs] == [None]


def test_a_cheaper_cut_does_not_lead_to_eager_execution_round_the_single_replay() -> None:
    costs = MeasuredCosts({512: 4.7, 1024: 10.0}, ((1, 9.35),))  # the cut saves 6 % of the replay, eager a little more
    assert [run.budget for run in Planner(roomy(512, 1024), costs).plan([FULL] * 4).runs] == [512, 512]
    costs = MeasuredCosts(costs.replays, ((1, 9.15),))
    assert [run.budget for run in Planner(roomy(512, 1024), costs).plan([FULL] * 4).runs] == [None]


@pytest.mark.parametrize("price", [inf, nan, -1.0])
def test_a_replay_whose_cost_is_no_number_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="a replay of 512 tokens costs"):
        Planner(roomy(512), FixedCosts(fixed_ms=price, ms_per_token=0.0))


def test_a_batch_is_cut_only_where_that_saves_more_than_a_launch_costs() -> None:
    plans = [Planner(roomy(320, 2048), FixedCosts(fixed, 0.01)).plan([FULL] * 5) for fixed in (0.5, 20.0)]
    assert [[run.budget for run in plan.runs] for plan in plans] == [[320] * 5, [2048]]


@pytest.mark.parametrize(("small_ms", "budgets"), [(4.8, [512]), (4.7, [256, 256])])
def test_more_replays_are_taken_only_if_they_save_more_than_5_percent(small_ms: float, budgets: list[int]) -> None:
    costs = MeasuredCosts({256: small_ms, 512: 10.0}, ((64, 100.0),))
    assert [run.budget for run in Planner(roomy(256, 512), costs).plan([FULL] * 2).runs] == budgets


def test_of_two_covers_that_cost_the_same_the_one_with_fewer_replays_is_taken() -> None:
    costs = MeasuredCosts({256: 5.0, 512: 10.0, 768: 15.0}, ((64, 100.0),))
    assert [run.budget for run in Planner(roomy(256, 512, 768), costs).plan([FULL] * 5).runs] == [768, 512]


def test_tiles_beyond_every_graph_and_the_others_run_eagerly_together_where_that_is_cheaper() -> None:
    beyond = EncoderItemSpec.of([TileSpec(4096, 1024)])
    batch = [FULL, beyond, FULL]
    cheap, dear = (
        MeasuredCosts({256: 10.0}, ((64, 12.0),)),
        MeasuredCosts({256: 1.0}, ((64, 12.0), (1024, 30.0), (2048, 60.0))),
    )
    assert [run.reason for run in Planner(roomy(256), cheap).plan(batch).runs] == ["cheaper"]
    reasons = [run.reason for run in Planner(roomy(256), dear).plan(batch).runs]
    assert reasons == [None, "tile_exceeds_every_budget", None]


def test_a_larger_graph_that_holds_less_of_anything_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must hold as many tiles as a smaller one; got \[4, 3\]"):
        Planner([GraphCapacity(64, 256, 4, 1), GraphCapacity(128, 512, 3, 1)])


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
def test_forty_pictures_are_planned_onto_few_replays(pictures: int, tiles: int) -> None:
    budgets = [*range(64, 513, 64), *range(640, 1025, 128), *range(1280, 2817, 256)]
    planner = Planner([GraphCapacity(tokens, 4 * tokens, tokens // 64, tokens // 64) for tokens in budgets])
    specs = [EncoderItemSpec.of([TileSpec(1024, 256)] * tiles)] * pictures
    plan = planner.plan(specs)
    assert len(plan.replays) == pictures * tiles // 11 + bool(pictures * tiles % 11)
    assert plan.eager_runs == ()

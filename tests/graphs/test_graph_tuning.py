"""Budgets for one's own sizes: the least padding there is, within every bound."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.graphs import BudgetRange, EncoderItemSpec, FixedCosts, GraphCapacity, MeasuredCosts, TileSpec
from foveate.graphs.tuning import GRAIN_TOKENS, expectation, tuned_budgets

from .checks import MANY

SPAN = BudgetRange(smallest=16, largest=512, step=64)
TILES = st.lists(st.integers(1, 64), min_size=1, max_size=8)
TRACES = st.lists(st.tuples(TILES, st.integers(1, 9)), min_size=1, max_size=8)


def item(tiles: list[int]) -> EncoderItemSpec:
    return EncoderItemSpec.of([TileSpec(4 * tokens, tokens) for tokens in tiles])


def counted(trace: list[tuple[list[int], int]]) -> Counter[EncoderItemSpec]:
    counts: Counter[EncoderItemSpec] = Counter()
    for tiles, count in trace:
        counts[item(tiles)] += count
    return counts


@MANY
@given(trace=TRACES, most=st.integers(1, 6), largest=st.integers(64, 600))
def test_budgets_keep_every_bound_and_hold_a_full_tile(
    trace: list[tuple[list[int], int]], most: int, largest: int
) -> None:
    budgets = tuned_budgets(counted(trace), SPAN, most_graphs=most, largest_tokens=largest)
    assert 1 <= len(budgets) <= most
    assert list(budgets) == sorted(set(budgets))
    assert SPAN.step <= budgets[-1] <= largest
    assert budgets[0] >= SPAN.smallest
    assert all(budget % GRAIN_TOKENS == 0 for budget in budgets)


@MANY
@given(sizes=st.dictionaries(st.integers(1, 8), st.integers(1, 9), min_size=1, max_size=6), most=st.integers(1, 4))
def test_no_other_choice_of_as_many_budgets_pads_less(sizes: dict[int, int], most: int) -> None:
    trace = Counter(
        {
            item([GRAIN_TOKENS * size] if size <= 4 else [64, GRAIN_TOKENS * (size - 4)]): count
            for size, count in sizes.items()
        }
    )
    budgets = tuned_budgets(trace, SPAN, most_graphs=most, largest_tokens=512)
    candidates = sorted({4 * GRAIN_TOKENS, *(GRAIN_TOKENS * size for size in sizes)})

    def rows(chosen: tuple[int, ...]) -> int:
        fitting = {size: [each for each in chosen if each >= GRAIN_TOKENS * size] for size in sizes}
        return sum(count * min(fitting[size]) for size, count in sizes.items()) if all(fitting.values()) else 10**9

    choices = [choice for count in range(1, most + 1) for choice in combinations(candidates, count)]
    assert rows(budgets) == min(rows(choice) for choice in choices if max(choice) >= 64)


def test_as_many_sizes_as_graphs_have_a_graph_each() -> None:
    trace = counted([([64, 64], 3), ([64], 1), ([64, 40], 5)])
    assert tuned_budgets(trace, SPAN, most_graphs=3, largest_tokens=512) == (64, 112, 128)
    assert tuned_budgets(trace, SPAN, most_graphs=2, largest_tokens=512) == (112, 128)


def test_an_item_beyond_the_memory_is_cut() -> None:
    assert tuned_budgets(counted([([64] * 5, 1)]), SPAN, most_graphs=8, largest_tokens=130) == (64, 128)


def test_a_trace_of_small_items_still_gets_a_graph_that_holds_any_tile() -> None:
    assert tuned_budgets(counted([([20], 7)]), SPAN, most_graphs=8, largest_tokens=512) == (32, 64)


@pytest.mark.parametrize(("most", "largest"), [(0, 512), (4, 63)])
def test_bounds_that_leave_no_full_tile_are_refused(most: int, largest: int) -> None:
    with pytest.raises(ValueError, match="hold no full tile of 64"):
        tuned_budgets(counted([([64], 1)]), SPAN, most_graphs=most, largest_tokens=largest)


def test_what_is_expected_is_the_mean_over_the_items() -> None:
    graphs = [GraphCapacity(tokens, 4 * tokens, 8, 8) for tokens in (64, 128)]
    trace = counted([([64], 3), ([64, 32], 1)])
    found = expectation(trace, graphs, FixedCosts(1.0, 0.25))
    assert found.padded_share == 32 / (3 * 64 + 128)
    assert found.ms_per_item == (3 * 17.0 + 33.0) / 4


def test_items_that_are_cheaper_eagerly_are_expected_to_run_so() -> None:
    graphs = [GraphCapacity(64, 256, 8, 8)]
    found = expectation(counted([([64], 2)]), graphs, MeasuredCosts({64: 9.0}, ((64, 4.0),)))
    assert (found.padded_share, found.ms_per_item) == (0.0, 4.0)

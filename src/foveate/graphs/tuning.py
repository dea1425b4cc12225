"""Budgets for the sizes of somebody's own items."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from foveate.graphs.costs import EncoderCosts
from foveate.graphs.planner import Planner
from foveate.graphs.protocol import BudgetRange, EncoderItemSpec, GraphCapacity

GRAIN_TOKENS = 16
"""Budgets are multiples of this: at most that many rows less one are padding where a size has a graph of its own."""


@dataclass(frozen=True)
class Expectation:
    """What items that come one at a time make of some graphs."""

    padded_share: float
    """Padding among all rows replayed."""
    ms_per_item: float
    """Mean cost of an item; infinity where some run eagerly and the costs know no time for that."""


def tuned_budgets(
    items: Mapping[EncoderItemSpec, int], span: BudgetRange, *, most_graphs: int, largest_tokens: int
) -> tuple[int, ...]:
    """Return the budgets, at most `most_graphs` and none beyond `largest_tokens`, with the least padding for `items`.

    `items` says how often each comes; there is at least one, with tiles. One that is larger than the largest graph is
    cut. Any full tile fits some graph. Raises ValueError if `most_graphs` or `largest_tokens` do not allow that.
    """
    largest = largest_tokens // GRAIN_TOKENS * GRAIN_TOKENS
    full_tile = _rounded_up(span.step)
    if most_graphs < 1 or largest < full_tile:
        raise ValueError(f"{most_graphs} graphs of at most {largest} tokens hold no full tile of {span.step}")
    counts: Counter[int] = Counter()
    for item, count in items.items():
        for tokens in _cut(item, largest):
            counts[max(_rounded_up(tokens), _rounded_up(span.smallest))] += count
    if max(counts) < full_tile:
        counts[full_tile] += 0
    return _least_padding(counts, most_graphs)


def expectation(
    items: Mapping[EncoderItemSpec, int], capacities: Collection[GraphCapacity], costs: EncoderCosts
) -> Expectation:
    """Plan each item alone; return what that comes to."""
    planner = Planner(tuple(capacities), costs)
    padded = replayed = 0
    cost_ms = 0.0
    for item, count in items.items():
        for run in planner.plan([item]).runs:
            padded += count * run.padded_tokens
            replayed += count * (run.budget or 0)
            cost_ms += count * (costs.eager_ms(run.tokens) if run.budget is None else costs.replay_ms(run.budget))
    return Expectation(padded / max(1, replayed), cost_ms / max(1, sum(items.values())))


def _cut(item: EncoderItemSpec, largest: int) -> list[int]:
    """Return the tokens of the fewest runs of neighbouring tiles of at most `largest` tokens each; a tile beyond that
    runs eagerly and is left out."""
    runs: list[int] = []
    for tile in item.tiles:
        if tile.output_tokens > largest:
            continue
        if runs and runs[-1] + tile.output_tokens <= largest:
            runs[-1] += tile.output_tokens
        else:
            runs.append(tile.output_tokens)
    return runs


def _rounded_up(tokens: int) -> int:
    return -(-tokens // GRAIN_TOKENS) * GRAIN_TOKENS


def _least_padding(counts: Mapping[int, int], most: int) -> tuple[int, ...]:
    """Choose at most `most` of the sizes, the largest among them, so that every size rounded up to the next chosen one
    is padded least in sum."""
    sizes = sorted(counts)
    before = [0]  # how many runs are at most as large as each size
    for size in sizes:
        before.append(before[-1] + counts[size])
    # rows[end]: the least rows replayed for the first `end` sizes with so many graphs, the last of them sizes[end - 1].
    rows: list[float] = [0.0] + [inf] * len(sizes)
    came_from: list[list[int]] = []
    for _ in range(min(most, len(sizes))):
        choices = [
            min((rows[first] + sizes[end - 1] * (before[end] - before[first]), first) for first in range(end))
            for end in range(1, len(sizes) + 1)
        ]
        rows = [inf, *(cost for cost, _ in choices)]
        came_from.append([0, *(first for _, first in choices)])
    chosen, end = [], len(sizes)
    for origins in reversed(came_from):
        chosen.append(sizes[end - 1])
        end = origins[end]
    return tuple(sorted(chosen))

"""What a replay costs, and what it costs to run eagerly: the numbers between which the planner chooses.

One number a graph, measured full. Replayed with padding, a graph takes less by what attention would have cost in the
padding, a fifth of the time at most; with budgets as close as the automatic ones that is within the margin by which an
alternative has to win, or far from where eager execution competes. An eager run is a function of its tokens alone for a
like reason: tiles shorter than full ones make both sides cheaper by the same attention.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol


class EncoderCosts(Protocol):
    """Milliseconds of what the planner chooses between."""

    def replay_ms(self, budget: int) -> float:
        """Return the cost of one run in the graph of `budget` tokens, copies included."""

    def eager_ms(self, tokens: int) -> float:
        """Return the cost of running `tokens` tokens kernel by kernel, without padding; infinity for never."""


@dataclass(frozen=True)
class FixedCosts:
    """Costs where nothing is measured: about those of the vision encoder of LFM2.5-VL-3B on an H200.

    Eager execution never costs less: without CUDA neither is a gain, and plans over graphs are what is to be tried.
    """

    fixed_ms: float = 1.04
    """The part of a replay that does not depend on its size: a batch is cut only to save more than that."""
    ms_per_token: float = 0.0065
    """The part that does, for each token of the budget, padding included."""

    def replay_ms(self, budget: int) -> float:
        """Return the fixed part and the tokens'."""
        return self.fixed_ms + self.ms_per_token * budget

    def eager_ms(self, tokens: int) -> float:  # noqa: ARG002 - the protocol's signature
        """Return infinity."""
        return inf


@dataclass(frozen=True)
class MeasuredCosts:
    """Costs measured on the card at hand. Raises ValueError if any is not a positive number or an eager one is
    missing."""

    replays: Mapping[int, float]
    """Milliseconds of one run in each graph, by token budget."""
    eager: tuple[tuple[int, float], ...]
    """(tokens, milliseconds) of eager runs of a few sizes, ascending; at least one."""

    def __post_init__(self) -> None:
        sizes = [tokens for tokens, _ in self.eager]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"eager runs were measured at {sizes} tokens; they must ascend from 1 or more")
        times = [*self.replays.values(), *(ms for _, ms in self.eager)]
        if not all(0 < ms < inf for ms in times):
            raise ValueError("a measured time is not a positive number of milliseconds")

    def replay_ms(self, budget: int) -> float:
        """Return what was measured for that graph; KeyError if nothing was."""
        return self.replays[budget]

    def eager_ms(self, tokens: int) -> float:
        """Interpolate between the sizes measured. Below the smallest, launches alone take that long; beyond the
        largest, each token costs what it did between the last two."""
        below, below_ms = self.eager[0]
        slope = 0.0
        for size, ms in self.eager[1:]:
            if below >= tokens:
                break
            slope = (ms - below_ms) / (size - below)
            if tokens <= size:
                return below_ms + slope * (tokens - below)
            below, below_ms = size, ms
        return below_ms + max(0.0, slope) * max(0, tokens - below)

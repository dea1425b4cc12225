"""How a batch will run: which tiles go into which graph, and which run eagerly."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

EagerReason = Literal["tile_exceeds_every_budget", "graphs_switched_off", "modality_not_captured", "cheaper"]


@dataclass(frozen=True)
class PlannedRun:
    """Neighbouring tiles that run together. Invariant: they fit the budget; ValueError otherwise."""

    first_tile: int
    """Index of the first tile, over the whole batch."""
    end_tile: int
    """Index behind the last."""
    tokens: int
    """Output rows of these tiles."""
    input_rows: int
    """Input rows of these tiles."""
    items: int
    """Items with tiles among these."""
    budget: int | None
    """Token budget of the graph that replays them; None means eagerly."""
    reason: EagerReason | None = None
    """Why they run eagerly; None for a replay."""

    def __post_init__(self) -> None:
        if self.padded_tokens < 0:
            raise ValueError(f"a run of {self.tokens} tokens cannot replay the graph of {self.budget} tokens")

    @property
    def tiles(self) -> range:
        """The tiles, by index over the whole batch."""
        return range(self.first_tile, self.end_tile)

    @property
    def padded_tokens(self) -> int:
        """Output rows of the replay that belong to no tile."""
        return 0 if self.budget is None else self.budget - self.tokens

    def in_graph(self, budget: int) -> "PlannedRun":
        """Return the run of the same tiles as a replay of the graph of `budget` tokens."""
        return replace(self, budget=budget, reason=None)

    def behind(self, tiles: int) -> "PlannedRun":
        """Return the same run of tiles that lie so many further back in the batch."""
        return replace(self, first_tile=self.first_tile + tiles, end_tile=self.end_tile + tiles)


@dataclass(frozen=True)
class Plan:
    """How a batch runs. Invariant: the runs are in tile order, and every tile is in exactly one of them."""

    runs: tuple[PlannedRun, ...]

    @cached_property
    def replays(self) -> tuple[PlannedRun, ...]:
        """The runs that replay a graph."""
        return tuple(run for run in self.runs if run.budget is not None)

    @cached_property
    def eager_runs(self) -> tuple[PlannedRun, ...]:
        """The runs that do not."""
        return tuple(run for run in self.runs if run.budget is None)

    @cached_property
    def num_tiles(self) -> int:
        """Tiles of the batch."""
        return sum(len(run.tiles) for run in self.runs)

    @cached_property
    def tokens(self) -> int:
        """Output rows of the batch."""
        return sum(run.tokens for run in self.runs)

"""What the encoder did, and what its graphs cost."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from foveate.graphs.plan import Plan
from foveate.graphs.protocol import GraphCapacity


@dataclass
class EncoderStats:
    """Counts since the start.

    Invariants: every tile is either replayed or eager; every eager tile and every eager run has one reason.
    """

    batches: int = 0
    """Calls of `execute`."""
    items: int = 0
    """Items encoded."""
    replayed_tiles: int = 0
    """Tiles that ran in a graph."""
    eager_tiles_by_reason: Counter[str] = field(default_factory=Counter)
    """Tiles that did not, by reason."""
    replays: Counter[int] = field(default_factory=Counter)
    """Replays by token budget."""
    eager_runs: Counter[str] = field(default_factory=Counter)
    """Eager runs by reason."""
    real_tokens: int = 0
    """Output rows of replays that belong to a tile."""
    padded_tokens: int = 0
    """Output rows of replays that do not."""
    graphs_switched_off: int = 0
    """Graphs that failed their start-up check and are never replayed."""

    @property
    def eager_tiles(self) -> int:
        """Tiles that ran outside of graphs."""
        return self.eager_tiles_by_reason.total()

    @property
    def tiles(self) -> int:
        """Tiles encoded."""
        return self.replayed_tiles + self.eager_tiles

    def count(self, plan: Plan, items: int) -> None:
        """Add one batch that ran by `plan`."""
        self.batches += 1
        self.items += items
        for run in plan.runs:
            if run.budget is None:
                reason = run.reason or "unknown"
                self.eager_tiles_by_reason[reason] += len(run.tiles)
                self.eager_runs[reason] += 1
            else:
                self.replayed_tiles += len(run.tiles)
                self.replays[run.budget] += 1
                self.real_tokens += run.tokens
                self.padded_tokens += run.padded_tokens


@dataclass(frozen=True)
class GraphReport:
    """One captured graph."""

    capacity: GraphCapacity
    """What fits into it."""
    pool_bytes: int
    """Bytes that its capture added to the shared pool, by the allocator's count; 0 without CUDA."""
    replay_ms: float
    """Milliseconds of one replay, measured at the start-up check."""
    fault: str | None
    """What the start-up check found; None if nothing. A graph with a fault is never replayed."""


CostSource = Literal["given", "fixed", "measured", "kept"]
"""Where the planner's costs come from: the caller, the fixed formula, a measurement at this start, or an earlier one's
that was kept on disk."""


@dataclass(frozen=True)
class StartUp:
    """What the start took, in seconds."""

    capture_s: float
    """Warming up and capturing the graphs; on a first start with compiling their kernels."""
    check_s: float
    """Checking them."""
    costs_s: float
    """Measuring or loading the costs."""
    cost_source: CostSource
    """Where the costs come from."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.capture_s + self.check_s + self.costs_s


@dataclass(frozen=True)
class GraphMemory:
    """Device memory of the runtime, in bytes."""

    buffer_bytes: int
    """The shared input and output buffers."""
    pool_bytes: int
    """The shared pool of all graphs, by the allocator's count."""
    free_before_bytes: int
    """Free memory of the card before the first capture; 0 without CUDA. Others on the card move it too."""
    free_after_bytes: int
    """Free memory of the card after the last."""

    @property
    def total_bytes(self) -> int:
        """Buffers and pool."""
        return self.buffer_bytes + self.pool_bytes

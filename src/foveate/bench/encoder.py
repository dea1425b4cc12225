"""How long does the image encoder take, in which way, and how far is each from the least it could take?

Every way encodes the same patches. Its features are compared with those of our eager path first; then all ways of this
process are timed in turn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foveate.bench.batches import TileRow
from foveate.bench.ceilings import Ceilings
from foveate.bench.timing import paired_ratio, relative_error, summary, time_rounds
from foveate.bench.ways import EncoderCall, Way, eager_way, our_way
from foveate.bench.work import floor_ms
from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel

LARGEST_ERROR = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Relative norm of what another way's features may be off ours. Two implementations in bfloat16 are each up to 0.012
off float32 at the largest size; float16 has three more bits."""
OURS = ("eager", "graph")

RowProgress = Callable[[str, int, int], None]
"""Told of what is measured, and how many of how many rounds are done."""


@dataclass(frozen=True)
class WayResult:
    """One way on one batch."""

    median_ms: float
    p95_ms: float
    min_ms: float
    error: float | None
    """Relative norm of the difference from our eager features; None where it is not a number or shapes differ."""
    is_right: bool
    """Whether that is within the bound."""
    ratio: float | None = None
    """Median over the rounds of this way's time divided by that of our graphs in the same round; of the medians where
    the way ran in a process of its own; None without graphs."""


@dataclass
class RowResult:
    """One batch."""

    name: str
    tiles: int
    tokens: int
    """Rows of the encoder's output."""
    floor_ms: float
    """The least time by the measured ceilings."""
    budgets: list[int | None]
    """Where the plan sent it: the token budget of each replay, None for an eager run; empty without graphs."""
    tiles_on_graphs: int
    padded_tokens: int
    """Rows of the replays that belong to no tile."""
    ways: dict[str, WayResult] = field(default_factory=dict)


class EncoderBenchmark:
    """One model, and what is compared on it."""

    def __init__(
        self,
        model: Lfm2VlModel,
        graph: GraphImageEncoder | None,
        ceilings: Ceilings,
        others: dict[str, Callable[[], Way]],
        *,
        rounds: int,
    ) -> None:
        """`others` make the ways of other engines when they are first needed."""
        self._model, self._graph, self._ceilings, self._rounds = model, graph, ceilings, rounds
        self._ways: dict[str, Way] = {"eager": eager_way(model)}
        if graph:
            self._ways["graph"] = our_way(graph)
        self.largest_error = LARGEST_ERROR[model.dtype]
        self.left_out: dict[str, str] = {}
        """Ways of other engines that do not work here, and why."""
        self.references: list[Tensor] = []
        """Our eager features of every batch, on the host."""
        for name, make in others.items():
            self._add(name, make)

    @torch.inference_mode()
    def measure(self, rows: Sequence[TileRow], progress: RowProgress | None = None) -> list[RowResult]:
        """Check and time every row."""
        return [self._measure(row, progress) for row in rows]

    def batch(self, row: TileRow) -> ImageBatch:
        """Return the patches of a row, the same at every call."""
        return row.batch(self._model.config, self._model.device, self._model.dtype)

    def add(self, name: str, results: list[RowResult], times_ms: list[list[float]], features: list[Tensor]) -> None:
        """Enter what another process measured on the same rows."""
        for row, times, found, reference in zip(results, times_ms, features, self.references, strict=True):
            graph = row.ways.get("graph")
            ratio = summary(times)["median_ms"] / graph.median_ms if graph else None
            row.ways[name] = self._result(times, found, reference, ratio)

    def _add(self, name: str, make: Callable[[], Way]) -> None:
        try:
            self._ways[name] = make()
        except Exception as error:  # another engine's fault must not end the measurement of ours
            self.left_out[name] = one_line(error)

    def _measure(self, row: TileRow, progress: RowProgress | None) -> RowResult:
        if progress:
            progress(row.name, 0, self._rounds)
        batch = self.batch(row)
        calls, features = self._prepare(batch)
        self.references.append(features["eager"])
        times = time_rounds(
            calls,
            rounds=self._rounds,
            progress=(lambda done: progress(row.name, done, self._rounds)) if progress else None,
        )
        result = self._row(row, batch)
        for name, values in times.items():
            ratio = paired_ratio(values, times["graph"]) if "graph" in times else None
            result.ways[name] = self._result(values, features[name], features["eager"], ratio)
        return result

    def _prepare(self, batch: ImageBatch) -> tuple[dict[str, EncoderCall], dict[str, Tensor]]:
        """Call every way once; those of others that fail are left out from here on."""
        calls: dict[str, EncoderCall] = {}
        features: dict[str, Tensor] = {}
        for name, way in list(self._ways.items()):
            try:
                call = way(batch)
                calls[name], features[name] = call, torch.cat(list(call())).cpu()
            except Exception as error:
                if name in OURS:
                    raise
                self.left_out[name] = one_line(error)
                del self._ways[name]
        return calls, features

    def _row(self, row: TileRow, batch: ImageBatch) -> RowResult:
        config = self._model.config
        plan = self._graph.manager.plan(batch) if self._graph else None
        return RowResult(
            name=row.name,
            tiles=len(row.tiles),
            tokens=row.tokens(config),
            floor_ms=round(floor_ms(config, row.tiles, self._ceilings, self._model.dtype.itemsize), 6),
            budgets=[run.budget for run in plan.runs] if plan else [],
            tiles_on_graphs=sum(len(run.tiles) for run in plan.replays) if plan else 0,
            padded_tokens=sum(run.padded_tokens for run in plan.replays) if plan else 0,
        )

    def _result(self, times_ms: list[float], features: Tensor, reference: Tensor, ratio: float | None) -> WayResult:
        error = relative_error(features, reference) if features.shape == reference.shape else math.inf
        is_right, rounded = error <= self.largest_error, None if ratio is None else round(ratio, 4)
        return WayResult(
            **summary(times_ms), error=error if math.isfinite(error) else None, is_right=is_right, ratio=rounded
        )


def one_line(error: Exception) -> str:
    """Return what an error says, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

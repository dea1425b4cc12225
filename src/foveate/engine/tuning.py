"""Encoder graphs for the sizes of somebody's own pictures, and what they gain."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from foveate.engine.graph_encoding import capture_encoder
from foveate.errors import ConfigurationError, ImageSizeError
from foveate.graphs import EncoderCosts, EncoderGraphSettings, EncoderItemSpec, FixedCosts
from foveate.graphs.budgets import LARGEST_MULTIPLE, graph_capacities
from foveate.graphs.tuning import Expectation, expectation, tuned_budgets
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.encoder_graphs import budget_range, estimated_bytes_per_token, picture_spec
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.tiles import plan_tiles

ELEMENT_SIZE = 2
"""Bytes of a number in the types that graphs are captured in."""


@dataclass(frozen=True)
class TunedGraphs:
    """Some budgets and what they mean for a trace."""

    budgets: tuple[int, ...]
    """Tokens of each graph."""
    memory_bytes: int
    """Buffers and pool: measured, or estimated where nothing was captured."""
    expectation: Expectation
    """Padding and time, when every picture comes alone."""


class BudgetTuning:
    """Learns budgets for a trace: counts of (width, height), in pixels.

    With a model on CUDA, graphs are captured and their costs measured; without one, costs are the fixed ones.
    """

    def __init__(
        self, trace: Mapping[tuple[int, int], int], config: ModelConfig, model: Lfm2VlModel | None = None
    ) -> None:
        """Raises ConfigurationError if the model takes none of the pictures."""
        self._config, self._model = config, model
        self.refused = 0
        """Pictures too thin for the model, which are left out."""
        self._items: Counter[EncoderItemSpec] = Counter()
        for (width, height), count in trace.items():
            try:
                tiles = plan_tiles(width, height, config.images).tiles
            except ImageSizeError:
                self.refused += count
            else:
                self._items[picture_spec(tiles, config.projector.downsample_factor)] += count
        if not self._items:
            raise ConfigurationError(f"the trace has {self.refused} pictures, all of them too thin for the model")

    def default(self) -> TunedGraphs:
        """Return what automatic budgets give."""
        return self._graphs(EncoderGraphSettings(cudagraph_mm_encoder=True))

    def tuned(self, default: TunedGraphs, *, most_graphs: int, memory_mb: float | None = None) -> TunedGraphs:
        """Return budgets with the least padding for the trace, within bounds.

        Memory is reckoned from what `default` takes. Raises ConfigurationError if it does not do for a full tile.
        """
        span = budget_range(self._config)
        largest = LARGEST_MULTIPLE * span.largest
        if memory_mb is not None:
            bytes_per_token = default.memory_bytes / default.budgets[-1]
            largest = int(min(largest, memory_mb * 1e6 / bytes_per_token)) if memory_mb > 0 else 0
            if largest < span.step:
                least = span.step * bytes_per_token / 1e6
                raise ConfigurationError(
                    f"memory is {memory_mb:g} MB; the graph of one full tile takes {least:.1f} MB: give at least that"
                )
        budgets = tuned_budgets(self._items, span, most_graphs=most_graphs, largest_tokens=largest)
        return self._graphs(EncoderGraphSettings(True, budgets))

    def _graphs(self, settings: EncoderGraphSettings) -> TunedGraphs:
        factor = self._config.projector.downsample_factor
        span = budget_range(self._config)
        capacities = graph_capacities(settings, span, inputs_per_token=factor**2, frames_per_video=0)
        costs: EncoderCosts = FixedCosts()
        memory_bytes = capacities[-1].tokens * estimated_bytes_per_token(self._config, ELEMENT_SIZE)
        if self._model is not None:
            manager = capture_encoder(self._model, settings, refresh_costs=True).manager
            capacities = tuple(report.capacity for report in manager.reports if report.fault is None)
            costs, memory_bytes = manager.costs, manager.memory.total_bytes
            del manager
            torch.cuda.empty_cache()
        budgets = tuple(sorted(capacity.tokens for capacity in capacities))
        return TunedGraphs(budgets, memory_bytes, expectation(self._items, capacities, costs))

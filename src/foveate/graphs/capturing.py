"""The start of the runtime: captures every graph, then checks every one."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch

from foveate.errors import GraphCheckError
from foveate.graphs.backends import GraphBackend, Work
from foveate.graphs.buffers import StaticBuffers
from foveate.graphs.measuring import free_bytes, reserved_bytes, time_ms
from foveate.graphs.protocol import Batch, GraphCapacity, SupportsEncoderCudaGraph
from foveate.graphs.selfcheck import GraphUnderTest, find_fault
from foveate.graphs.stats import GraphReport

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of graphs that are ready so far and in all."""


@dataclass(frozen=True)
class CapturedGraph:
    """One graph and the work that it recorded. A graph that failed its check is kept too, and never replayed."""

    capacity: GraphCapacity
    replay: Work
    work: Work


@dataclass(frozen=True)
class CapturedGraphs:
    """All graphs of an encoder, and what their start took."""

    graphs: dict[int, CapturedGraph]
    """By token budget."""
    reports: tuple[GraphReport, ...]
    """Largest first."""
    free_bytes: tuple[int, int]
    """Free memory of the card before and after."""
    capture_s: float
    """Seconds of warming up and capturing."""
    check_s: float
    """Seconds of checking."""

    @property
    def usable(self) -> list[GraphCapacity]:
        """The graphs that passed their check."""
        return [report.capacity for report in self.reports if report.fault is None]


class GraphCapture(Generic[Batch]):
    """Captures and checks the graphs of one encoder."""

    def __init__(
        self,
        model: SupportsEncoderCudaGraph[Batch],
        device: torch.device,
        buffers: StaticBuffers,
        backend: GraphBackend,
        *,
        strict: bool,
    ) -> None:
        """`strict` makes a graph that fails its check a GraphCheckError."""
        self._model, self._device, self._buffers, self._backend = model, device, buffers, backend
        self._strict = strict

    def capture(self, capacities: Sequence[GraphCapacity], progress: Progress | None = None) -> CapturedGraphs:
        """Capture all, in this order; then check all.

        Apart, because counting the memory of a graph gives back what is cached, and each check would ask for it again.
        """
        reserved_bytes(self._device)  # gives cached memory back, so that free memory before and after can be compared
        free_before, start = free_bytes(self._device), time.perf_counter()
        captured = [self._capture_one(capacity) for capacity in capacities]
        middle = time.perf_counter()
        reports = []
        for graph, pool_bytes in captured:
            reports.append(self._check_one(graph, pool_bytes))
            if progress:
                progress(len(reports), len(capacities))
        reserved_bytes(self._device)
        graphs = {graph.capacity.tokens: graph for graph, _ in captured}
        memory, end = (free_before, free_bytes(self._device)), time.perf_counter()
        return CapturedGraphs(graphs, tuple(reports), memory, middle - start, end - middle)

    def _capture_one(self, capacity: GraphCapacity) -> tuple[CapturedGraph, int]:
        """Return the graph and the bytes that it added to the pool."""
        inputs, output = self._buffers.inputs(capacity), self._buffers.output(capacity.tokens)

        def work() -> None:
            output.copy_(self._model.encoder_cudagraph_forward(inputs))

        sample = self._model.prepare_encoder_cudagraph_capture_inputs(capacity)
        self._buffers.load(capacity, self._model.prepare_encoder_cudagraph_replay_buffers(sample))
        before = reserved_bytes(self._device)
        replay = self._backend.capture(work)
        return CapturedGraph(capacity, replay, work), reserved_bytes(self._device) - before

    def _check_one(self, graph: CapturedGraph, pool_bytes: int) -> GraphReport:
        fault = find_fault(GraphUnderTest(self._model, self._buffers, graph.capacity, graph.replay, graph.work))
        if fault:
            message = f"the encoder graph of {graph.capacity.tokens} tokens is switched off: {fault}"
            if self._strict:
                raise GraphCheckError(message)
            logger.error(message)
        return GraphReport(graph.capacity, pool_bytes, time_ms(self._device, graph.replay), fault)

"""Runs any batch of images on captured graphs: plan, copy in, replay, copy out."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from foveate.errors import GraphCheckError
from foveate.graphs.backends import GraphBackend, Work, default_backend
from foveate.graphs.budgets import graph_capacities
from foveate.graphs.buffers import StaticBuffers
from foveate.graphs.contract import OutputRows, check_out, check_output, check_plan, check_rows
from foveate.graphs.measuring import free_bytes, reserved_bytes, time_ms
from foveate.graphs.plan import Plan, PlannedRun
from foveate.graphs.planner import Planner, ReplayCost, eager_plan
from foveate.graphs.protocol import Batch, GraphCapacity, SupportsEncoderCudaGraph
from foveate.graphs.selfcheck import GraphUnderTest, find_fault
from foveate.graphs.settings import EncoderGraphSettings
from foveate.graphs.stats import EncoderStats, GraphMemory, GraphReport

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of graphs captured so far and in all."""


@dataclass(frozen=True)
class CapturedGraph:
    """One graph and the work that it recorded. A graph that failed its check is kept too, and never replayed."""

    capacity: GraphCapacity
    replay: Work
    work: Work


class EncoderCudaGraphManager(Generic[Batch]):
    """Owns the graphs of one encoder.

    Invariants: graphs are captured at the start only, largest first, into one pool, and kept; one replay is in flight
    at a time, and its output is copied out before the next touches the buffers, on whatever streams they run; what
    `execute` returns never aliases a buffer. Safe to use from several threads.
    """

    def __init__(
        self,
        model: SupportsEncoderCudaGraph[Batch],
        device: torch.device,
        settings: EncoderGraphSettings | None = None,
        *,
        backend: GraphBackend | None = None,
        cost: ReplayCost | None = None,
        strict: bool = False,
    ) -> None:
        """Set up without capturing.

        `cost` is what the planner makes small; `strict` makes a graph that fails its check an error instead of
        switching it off. Raises ConfigurationError when `settings` do not fit the model.
        """
        self._model, self._device, self._cost, self._strict = model, device, cost, strict
        self._config = model.get_encoder_cudagraph_config()
        self._capacities = graph_capacities(
            settings or EncoderGraphSettings(),
            model.get_encoder_cudagraph_budget_range(),
            inputs_per_token=self._config.inputs_per_token,
            frames_per_video=model.get_max_frames_per_video(),
        )
        self._backend = backend or default_backend(device)
        self._buffers = StaticBuffers(self._config, self._capacities, device)
        self._graphs: dict[int, CapturedGraph] = {}
        self._reports: list[GraphReport] = []
        self._free_bytes = (0, 0)
        self._planner = Planner((), cost)
        self._lock = threading.Lock()
        self._idle = torch.cuda.Event() if device.type == "cuda" else None
        self.stats = EncoderStats()

    @property
    def backend_name(self) -> str:
        """`cuda_graph`, or `eager` where there is no CUDA."""
        return self._backend.name

    @property
    def reports(self) -> tuple[GraphReport, ...]:
        """Every captured graph, largest first, with what the start-up check found."""
        return tuple(self._reports)

    @property
    def memory(self) -> GraphMemory:
        """Device memory of buffers and graphs."""
        pool = sum(report.pool_bytes for report in self._reports)
        return GraphMemory(self._buffers.num_bytes, pool, *self._free_bytes)

    @torch.no_grad()
    def capture(self, progress: Progress | None = None) -> None:
        """Capture and check every graph, largest first. Called once, at the start; ValueError the second time."""
        if self._graphs:
            raise ValueError("these graphs are captured already; make another manager for other graphs")
        reserved_bytes(self._device)  # gives cached memory back, so that free memory before and after can be compared
        before = free_bytes(self._device)
        for index, capacity in enumerate(reversed(self._capacities), 1):
            self._capture_one(capacity)
            if progress:
                progress(index, len(self._capacities))
        self._free_bytes = (before, free_bytes(self._device))
        usable = [report.capacity for report in self._reports if report.fault is None]
        self.stats.graphs_switched_off = len(self._reports) - len(usable)
        self._planner = Planner(usable, self._cost)
        self._log_start()

    def plan(self, batch: Batch) -> Plan:
        """Decide how a batch runs; host work alone."""
        specs = self._model.get_encoder_cudagraph_item_specs(batch)
        if self._model.get_input_modality(batch) not in self._config.modalities:
            return eager_plan(specs, "modality_not_captured")
        return self._planner.plan(specs)

    @torch.no_grad()
    def execute(self, batch: Batch, out: OutputRows | None = None, *, plan: Plan | None = None) -> list[Tensor]:
        """Encode a batch of any size on the current stream.

        Returns one fresh tensor `[output_tokens, output_width]` an item, or, when `out` is given, writes the rows
        there and returns an empty list. `plan` is one that `plan(batch)` gave. Nothing is read back from the device.
        Raises ValueError when `out` or `plan` do not fit the batch, or when the model breaks its own item specs.
        """
        specs = self._model.get_encoder_cudagraph_item_specs(batch)
        plan = plan or self.plan(batch)
        check_plan(plan, specs, self._graphs)
        if out is not None:
            check_out(out, plan.tokens, self._config.output_width)
        result = None if out else self._fresh(plan.tokens)
        with self._lock:
            with self._buffers_in_use():
                first = 0
                for run in plan.runs:
                    rows = self._run(self._model.select_encoder_cudagraph_items(batch, run.tiles), run)
                    _write(rows, first, result, out)
                    first += run.tokens
            self.stats.count(plan, len(specs))
        return [] if result is None else self._model.postprocess_encoder_output(result, specs)

    @contextmanager
    def _buffers_in_use(self) -> Iterator[None]:
        # On whatever streams two calls run, the device finishes the first before the second touches a buffer.
        if self._idle is None:
            yield
            return
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._idle)
        try:
            yield
        finally:
            self._idle.record(stream)

    def _run(self, part: Batch, run: PlannedRun) -> Tensor:
        if run.budget is None:
            return check_output(self._model.encoder_eager_forward(part), run)
        graph = self._graphs[run.budget]
        values = self._model.prepare_encoder_cudagraph_replay_buffers(part)
        check_rows(self._config.buffers, values, run)
        self._buffers.load(graph.capacity, values)
        graph.replay()
        return self._buffers.output(run.tokens)

    def _fresh(self, tokens: int) -> Tensor:
        return torch.empty(tokens, self._config.output_width, dtype=self._config.output_dtype, device=self._device)

    def _capture_one(self, capacity: GraphCapacity) -> None:
        inputs, output = self._buffers.inputs(capacity), self._buffers.output(capacity.tokens)

        def work() -> None:
            output.copy_(self._model.encoder_cudagraph_forward(inputs))

        sample = self._model.prepare_encoder_cudagraph_capture_inputs(capacity)
        self._buffers.load(capacity, self._model.prepare_encoder_cudagraph_replay_buffers(sample))
        before = reserved_bytes(self._device)
        replay = self._backend.capture(work)
        pool_bytes = reserved_bytes(self._device) - before
        fault = find_fault(GraphUnderTest(self._model, self._buffers, capacity, replay, work))
        if fault:
            self._report_fault(capacity, fault)
        self._graphs[capacity.tokens] = CapturedGraph(capacity, replay, work)
        self._reports.append(GraphReport(capacity, pool_bytes, time_ms(self._device, replay), fault))

    def _log_start(self) -> None:
        memory, budgets = self.memory, [capacity.tokens for capacity in self._capacities]
        logger.info(
            "captured %d encoder graphs (%s), %d to %d tokens, %d switched off; buffers %.1f MB, graphs %.1f MB",
            len(budgets),
            self.backend_name,
            budgets[0],
            budgets[-1],
            self.stats.graphs_switched_off,
            memory.buffer_bytes / 1e6,
            memory.pool_bytes / 1e6,
        )

    def _report_fault(self, capacity: GraphCapacity, fault: str) -> None:
        message = f"the encoder graph of {capacity.tokens} tokens is switched off: {fault}"
        if self._strict:
            raise GraphCheckError(message)
        logger.error(message)


def _write(rows: Tensor, first: int, result: Tensor | None, out: OutputRows | None) -> None:
    if out is not None:
        out.embeddings.index_copy_(0, out.rows[first : first + rows.shape[0]], rows.to(out.embeddings.dtype))
    elif result is not None:
        result[first : first + rows.shape[0]].copy_(rows)

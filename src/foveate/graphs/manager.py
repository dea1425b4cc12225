"""Runs any batch of images on captured graphs: plan, copy in, replay, copy out."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic

import torch
from torch import Tensor

from foveate.graphs.backends import GraphBackend, default_backend
from foveate.graphs.budgets import graph_capacities
from foveate.graphs.buffers import StaticBuffers
from foveate.graphs.capturing import CapturedGraph, GraphCapture, Progress
from foveate.graphs.contract import OutputRows, check_out, check_output, check_plan, check_rows
from foveate.graphs.cost_measuring import CostMeasurement
from foveate.graphs.cost_store import CostStore
from foveate.graphs.costs import EncoderCosts, FixedCosts
from foveate.graphs.fixed_plans import ItemByItem, PlanBatch, keep_plans
from foveate.graphs.plan import Plan, PlannedRun
from foveate.graphs.planner import Planner, eager_plan
from foveate.graphs.protocol import Batch, EncoderItemSpec, GraphCapacity, SupportsEncoderCudaGraph
from foveate.graphs.settings import EncoderGraphSettings
from foveate.graphs.stats import CostSource, EncoderStats, GraphMemory, GraphReport, StartUp

logger = logging.getLogger(__name__)


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
        costs: EncoderCosts | None = None,
        cost_store: CostStore | None = None,
        strict: bool = False,
    ) -> None:
        """Set up without capturing.

        The planner goes by `costs`; without them by those in `cost_store`, measured if there are none yet; without
        either by a fixed formula. Fixed plans go by that formula always, so that they stay the same. `strict` makes a
        graph that fails its check an error instead of switching it off. Raises ConfigurationError when `settings` do
        not fit the model.
        """
        settings = settings or EncoderGraphSettings()
        self._model, self._device, self._strict = model, device, strict
        self._has_fixed_plans = settings.encoder_plan == "fixed"
        self._given_costs, self._cost_store = (None, None) if self._has_fixed_plans else (costs, cost_store)
        self._config = model.get_encoder_cudagraph_config()
        self._capacities = graph_capacities(
            settings,
            model.get_encoder_cudagraph_budget_range(),
            inputs_per_token=self._config.inputs_per_token,
            frames_per_video=model.get_max_frames_per_video(),
        )
        self._backend = backend or default_backend(device)
        self._buffers = StaticBuffers(self._config, self._capacities, device)
        self._graphs: dict[int, CapturedGraph] = {}
        self._reports: tuple[GraphReport, ...] = ()
        self._free_bytes = (0, 0)
        self._plan_captured = self._kept(Planner(()).plan)
        self._plan_uncaptured = self._kept(partial(eager_plan, reason="modality_not_captured"))
        self.costs: EncoderCosts = FixedCosts()
        self.start_up = StartUp(0.0, 0.0, 0.0, "fixed")
        self._lock = threading.Lock()
        self._idle = torch.cuda.Event() if device.type == "cuda" else None
        self._last_stream: torch.cuda.Stream | None = None
        self.stats = EncoderStats()
        self._usable: tuple[GraphCapacity, ...] = ()
        self._short_plans: dict[float, PlanBatch] = {}

    @property
    def backend_name(self) -> str:
        """`cuda_graph`, or `eager` where there is no CUDA."""
        return self._backend.name

    @property
    def reports(self) -> tuple[GraphReport, ...]:
        """Every captured graph, largest first, with what the start-up check found."""
        return self._reports

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
        capture = GraphCapture(self._model, self._device, self._buffers, self._backend, strict=self._strict)
        captured = capture.capture(self._capacities[::-1], progress)
        self._graphs, self._reports, self._free_bytes = captured.graphs, captured.reports, captured.free_bytes
        usable, start = captured.usable, time.perf_counter()
        self.stats.graphs_switched_off = len(self._graphs) - len(usable)
        self.costs, source = self._choose_costs(usable)
        self._usable = tuple(usable)
        self._short_plans.clear()
        self._plan_captured = self._kept(Planner(usable, self.costs).plan)
        costs_s = time.perf_counter() - start
        self.start_up = StartUp(captured.capture_s, captured.check_s, costs_s, source)
        self._log_start()

    def plan(self, batch: Batch) -> Plan:
        """Decide how a batch runs; host work alone."""
        return self._plan(batch, self._model.get_encoder_cudagraph_item_specs(batch))

    def _plan(self, batch: Batch, specs: Sequence[EncoderItemSpec], most_ms: float | None = None) -> Plan:
        if self._model.get_input_modality(batch) not in self._config.modalities:
            return self._plan_uncaptured(specs)
        if most_ms is None or self._has_fixed_plans:
            return self._plan_captured(specs)
        if most_ms not in self._short_plans:
            self._short_plans[most_ms] = self._kept(Planner(self._short_graphs(most_ms), self.costs).plan)
        return self._short_plans[most_ms](specs)

    def _short_graphs(self, most_ms: float) -> list[GraphCapacity]:
        """Return the graphs that take at most so long, and those that no full tile could do without."""
        one_tile = self._model.get_encoder_cudagraph_budget_range().step
        return [
            each for each in self._usable if each.tokens <= one_tile or self.costs.replay_ms(each.tokens) <= most_ms
        ]

    def execute(self, batch: Batch, out: OutputRows | None = None, *, plan: Plan | None = None) -> list[Tensor]:
        """Encode a batch of any size on the current stream.

        Returns one fresh tensor `[output_tokens, output_width]` an item, or, when `out` is given, writes the rows
        there and returns an empty list. `plan` is one that `plan(batch)` gave. Nothing is read back from the device.
        Raises ValueError when `out` or `plan` do not fit the batch, or when the model breaks its own item specs.
        """
        return self.plan_and_execute(batch, out, plan=plan)[1]

    @torch.no_grad()
    def plan_and_execute(
        self, batch: Batch, out: OutputRows | None = None, *, plan: Plan | None = None, most_ms: float | None = None
    ) -> tuple[Plan, list[Tensor]]:
        """Do what `execute` does; returns the plan that was followed, too.

        `most_ms` is how long one replay may take, for work beside others: larger graphs are not used then, unless a
        single full tile needs them. Plans that are fixed stay as they are.
        """
        specs = self._model.get_encoder_cudagraph_item_specs(batch)
        if plan is None:
            plan = self._plan(batch, specs, most_ms)
        else:
            check_plan(plan, specs, self._graphs)
        if out is not None:
            check_out(out, plan.tokens, self._config.output_width)
        with self._lock:
            result = self._encode(batch, plan, out)
            self.stats.count(plan, len(specs))
        return plan, [] if result is None else self._model.postprocess_encoder_output(result, specs)

    def _encode(self, batch: Batch, plan: Plan, out: OutputRows | None = None) -> Tensor | None:
        """Run a batch by a plan; returns its rows `[tokens, output_width]`, or None if they went to `out`."""
        is_one_run = len(plan.runs) == 1  # of all tiles in order
        if is_one_run and plan.runs[0].budget is None and out is None:
            return self._run(batch, plan.runs[0])  # fresh rows already: nothing to copy
        result = None if out else self._fresh(plan.tokens)
        with self._buffers_in_use():
            first = 0
            for run in plan.runs:
                part = batch if is_one_run else self._model.select_encoder_cudagraph_items(batch, run.tiles)
                rows = self._run(part, run)
                _write(rows, first, result, out)
                first += run.tokens
        return result

    @contextmanager
    def _buffers_in_use(self) -> Iterator[None]:
        # On whatever streams two calls run, the device finishes the first before the second touches a buffer. On one
        # and the same stream it does so by itself.
        if self._idle is None:
            yield
            return
        stream = torch.cuda.current_stream(self._device)
        if stream != self._last_stream:
            stream.wait_event(self._idle)
        self._last_stream = stream
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

    def _kept(self, plan_batch: PlanBatch) -> PlanBatch:
        return keep_plans(ItemByItem(plan_batch) if self._has_fixed_plans else plan_batch)

    def _choose_costs(self, usable: Sequence[GraphCapacity]) -> tuple[EncoderCosts, CostSource]:
        if self._given_costs is not None:
            return self._given_costs, "given"
        if self._cost_store is None or not usable:
            return FixedCosts(), "fixed"
        kept = self._cost_store.load([capacity.tokens for capacity in usable])
        if kept is not None:
            return kept, "kept"
        measurement = CostMeasurement(self._model, self._device, self._encode, self._config.inputs_per_token)
        measured, is_disturbed = measurement.measure(usable)
        if is_disturbed:
            logger.warning(
                "other work on %s disturbed the measurement of the encoder's costs; they are used for now, and the next"
                " start measures again",
                self._device,
            )
        else:
            self._cost_store.save(measured)
        return measured, "measured"

    def _log_start(self) -> None:
        memory, budgets = self.memory, [capacity.tokens for capacity in self._capacities]
        logger.info(
            "captured %d encoder graphs (%s), %d to %d tokens, %d switched off; buffers %.1f MB, graphs %.1f MB;"
            " %s costs",
            len(budgets),
            self.backend_name,
            budgets[0],
            budgets[-1],
            self.stats.graphs_switched_off,
            memory.buffer_bytes / 1e6,
            memory.pool_bytes / 1e6,
            self.start_up.cost_source,
        )


def _write(rows: Tensor, first: int, result: Tensor | None, out: OutputRows | None) -> None:
    if out is not None:
        out.embeddings.index_copy_(0, out.rows[first : first + rows.shape[0]], rows.to(out.embeddings.dtype))
    elif result is not None:
        result.narrow(0, first, rows.shape[0]).copy_(rows)

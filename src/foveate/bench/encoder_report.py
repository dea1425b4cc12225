"""From what somebody asks to the report of the encoder benchmark: the model, the graphs, other engines, the rows."""

import dataclasses
import gc
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from foveate.bench.batches import TileRow, full_rows, published_rows
from foveate.bench.ceilings import measure_ceilings
from foveate.bench.checkpoint import encoder_checkpoint
from foveate.bench.encoder import EncoderBenchmark, RowResult
from foveate.bench.encoder_question import EncoderQuestion
from foveate.bench.report import report
from foveate.bench.vllm_peer import MODES, PeerError, VllmPeer
from foveate.bench.ways import DESCRIPTIONS, TransformersWays, Way
from foveate.engine.graph_encoding import GraphImageEncoder, capture_encoder
from foveate.graphs import EncoderGraphSettings, parse_settings
from foveate.loading import LoadProgress, choose_device, choose_dtype, find_folder
from foveate.models.lfm2_vl.config import ModelConfig, read_model_config
from foveate.models.lfm2_vl.encoder_graphs import budget_range
from foveate.models.lfm2_vl.model import Lfm2VlModel, load_model

CPU_ROWS = 3


def encoder_report(question: EncoderQuestion, progress: LoadProgress) -> dict[str, Any]:
    """Measure, and return the report as its JSON holds it.

    `progress` is told what is being done, how many are done, and of how many. Raises what `foveate.load` raises.
    """
    device = choose_device(question.device)
    with tempfile.TemporaryDirectory() as scratch:
        folder = _checkpoint(question, device, Path(scratch), progress)
        config = read_model_config(folder)
        dtype, rows = choose_dtype(question.dtype, device, config.dtype), _rows(question, config, device)
        model = load_model(folder, config, device=device, dtype=dtype, progress=partial(progress, "weights"))
        graph = None
        if "graph" in question.ways:
            settings = _graph_settings(question, config, device)
            graph = capture_encoder(model, settings, strict=True, progress=partial(progress, "graphs"))
        measured = _Measurement(question, folder, model, graph, progress).of(rows)
    return report("How long does the image encoder take, and in which way?", measured)


def _checkpoint(question: EncoderQuestion, device: torch.device, scratch: Path, progress: LoadProgress) -> Path:
    if question.model is not None:
        return find_folder(question.model)
    dtype = str(choose_dtype(question.dtype, device, "bfloat16")).removeprefix("torch.")

    def show(written_bytes: int, total_bytes: int) -> None:
        progress("random weights, MB", written_bytes // 10**6, total_bytes // 10**6)

    return encoder_checkpoint(scratch / "model", question.layout_on(device), dtype, show)


def _rows(question: EncoderQuestion, config: ModelConfig, device: torch.device) -> list[TileRow]:
    if question.tiles:
        return full_rows(question.tiles, config)
    return published_rows()[: CPU_ROWS if device.type == "cpu" else None]


def _graph_settings(question: EncoderQuestion, config: ModelConfig, device: torch.device) -> EncoderGraphSettings:
    settings = parse_settings(question.compilation_config)
    if device.type == "cpu" and settings == EncoderGraphSettings():
        # All automatic graphs would be checked for a minute.
        span = budget_range(config)
        settings = EncoderGraphSettings(encoder_cudagraph_token_budgets=(span.smallest, span.step, 3 * span.step))
    return settings


class _Measurement:
    """One loaded model and whatever is measured on it."""

    def __init__(
        self,
        question: EncoderQuestion,
        folder: Path,
        model: Lfm2VlModel,
        graph: GraphImageEncoder | None,
        progress: LoadProgress,
    ) -> None:
        self._question, self._folder, self._progress = question, folder, progress
        self._model, self._graph = model, graph
        self._rounds = question.rounds_on(model.device)

    def of(self, rows: Sequence[TileRow]) -> dict[str, Any]:
        """Measure all rows in all ways."""
        self._progress("ceilings", 0, 1)
        ceilings = measure_ceilings(self._model.device, self._model.dtype)
        ways = self._ways_of_transformers()
        benchmark = EncoderBenchmark(self._model, self._graph, ceilings, ways, rounds=self._rounds)
        results = benchmark.measure(rows, self._progress)
        version = self._add_vllm(benchmark, rows, results) if "vllm" in self._question.ways else None
        names = dict.fromkeys(name for row in results for name in row.ways)
        device = self._model.device
        return {
            "model": self._question.model or f"{self._question.layout_on(device)}, random weights",
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "rounds": self._rounds,
            "largest_error": benchmark.largest_error,
            "ceilings": dataclasses.asdict(ceilings),
            "graphs": graph_record(self._graph) if self._graph else None,
            "vllm_version": version,
            "ways": {name: DESCRIPTIONS[name] for name in names},
            "left_out": benchmark.left_out,
            "rows": [dataclasses.asdict(row) for row in results],
        }

    def _ways_of_transformers(self) -> dict[str, Callable[[], Way]]:
        most_patches = self._model.config.images.longest_tile_patches
        load = cache(lambda: TransformersWays(self._folder, self._model.device, self._model.dtype, most_patches))
        ways: dict[str, Callable[[], Way]] = {
            "transformers": lambda: load().eager,
            "transformers-compile": lambda: load().compiled,
        }
        return {name: make for name, make in ways.items() if name in self._question.ways}

    def _add_vllm(self, benchmark: EncoderBenchmark, rows: Sequence[TileRow], results: list[RowResult]) -> str | None:
        """Have vLLM measured in each of its modes; returns its version, None if nothing worked."""
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            peer = VllmPeer(self._question.vllm_python, self._folder, self._model.dtype, self._rounds)
        except PeerError as error:
            benchmark.left_out["vllm"] = str(error)
            return None
        batches, version = [benchmark.batch(row) for row in rows], None
        for done, mode in enumerate(MODES):
            self._progress(f"{mode}, a minute or two", done, len(MODES))
            try:
                found = peer.measure(mode, batches, self._model.config.images.longest_tile_patches)
            except PeerError as error:
                benchmark.left_out[mode] = str(error)
                continue
            benchmark.add(mode, results, found.times_ms, found.features)
            version = found.version
        return version


def graph_record(graph: GraphImageEncoder) -> dict[str, Any]:
    """Return what our graphs took to start, and what they hold."""
    manager = graph.manager
    memory = manager.memory
    return {
        "backend": manager.backend_name,
        "count": len(manager.reports),
        "start_s": round(manager.start_up.total_s, 2),
        "cost_source": manager.start_up.cost_source,
        "buffer_mb": round(memory.buffer_bytes / 1e6, 1),
        "pool_mb": round(memory.pool_bytes / 1e6, 1),
    }

"""How long from the bytes of JPEGs to answers, alone and among others, with encoder graphs and without?

    python benchmarks/engine.py OUT.json [--sizes 450M 3B] [--rounds 8]

Random weights of the true sizes in bfloat16, greedy, answers of a fixed length; no features are kept. The rows are
those of `foveate bench latency` and `throughput`, the two ways in turn; then what a decode step takes on the device, by
batch size and kind of sampling.
"""

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import SIZES, ceilings, need_gpu, summary, write_report

from foveate import VLM, EngineSettings, SamplingParams
from foveate.bench.serving import Load, measure_load, row_name
from foveate.bench.serving_pictures import drawn_jpegs
from foveate.engine.clock import Span
from foveate.engine.decoder import Decoder, step_backend
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import capture_encoder
from foveate.engine.memory import allocate
from foveate.engine.sampler import SamplingKind
from foveate.graphs import parse_settings
from foveate.testing import random_vlm

LOADS = (
    ((256, 256), 1, 1),
    ((512, 512), 1, 1),
    ((1024, 1024), 1, 1),
    ((1920, 1080), 1, 1),
    ((512, 512), 64, 1),
    ((512, 512), 64, 8),
    ((512, 512), 64, 32),
    ((1920, 1080), 64, 1),
    ((512, 512), 500, 1),
)
"""Pictures, tokens of an answer, requests at once."""
LONG_TOKENS, LONG_ROUNDS = 500, 3
REFERENCE = {
    "cudagraph_mm_encoder": True,
    "encoder_cudagraph_token_budgets": [64, 256, 512, 1024, 2048, 4096],
    "encoder_cudagraph_max_vision_items_per_batch": 16,
}
"""The setting of the pull request that brought encoder graphs for LFM2-VL to vLLM, measured there with LFM2-VL-3B."""
REFERENCE_SIZE, REFERENCE_LOADS = "3B", (((512, 512), 500, 1), ((512, 512), 500, 8))
STEP_SIZES = (1, 8, 32)
CONTEXT_TOKENS, STEPS = 1024, 20
SETTINGS = EngineSettings(image_cache_megabytes=0, cache_fraction=0.3)


def measure_steps(vlm: VLM) -> dict[str, Any]:
    """Return the milliseconds that the device takes for a captured decode step, by batch size and kind."""
    memory = allocate(vlm.model, EngineSettings(max_running=max(STEP_SIZES), cache_megabytes=4000))
    slots = []
    for _ in range(max(STEP_SIZES)):
        own = memory.pool.open(CONTEXT_TOKENS + 2 * STEPS)
        memory.slots.set(own, SamplingParams(), [1])
        slots.append(own.slot)
    decoder = Decoder(vlm.model, memory.pool.tensors, memory.slots, step_backend(vlm.model.device))
    decoder.record()
    report: dict[str, Any] = {}
    for count in STEP_SIZES:
        for kind in SamplingKind:
            memory.slots.lengths[:-1] = CONTEXT_TOKENS
            times = []
            for number in range(STEPS + 4):
                span = Span(vlm.model.device)
                decoder.launch(slots[:count], kind)
                span.stop()
                if number >= 4:
                    times.append(span.milliseconds)
            report[f"{count} at once, {kind.name.lower()}"] = summary(times)
    return report


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Measure one size."""
    graph = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", engine=SETTINGS)
    eager = VLM(graph.model, graph.processor, EagerImageEncoder(graph.model.encoder), settings=SETTINGS)
    report: dict[str, Any] = {"steps": measure_steps(graph)}
    for name, times in report["steps"].items():
        print(size, "decode step:", name, times, flush=True)
    with graph, eager:
        report["rows"] = measure_loads({"graph": graph, "eager": eager}, LOADS, rounds, size)
        report["cache_pages"] = graph.engine.stats.pages
    if size == REFERENCE_SIZE:
        settings = parse_settings(REFERENCE)
        asked = VLM(graph.model, graph.processor, capture_encoder(graph.model, settings), settings=SETTINGS)
        plain = VLM(graph.model, graph.processor, EagerImageEncoder(graph.model.encoder), settings=SETTINGS)
        with asked, plain:
            vlms = {"graph": asked, "eager": plain}
            report["reference_setting"] = measure_loads(vlms, REFERENCE_LOADS, rounds, f"{size}, reference's setting,")
    return report


def measure_loads(vlms: dict[str, VLM], loads: Sequence[Any], rounds: int, told_as: str) -> list[dict[str, Any]]:
    """Measure each load, and print it."""
    rows = []
    for picture, tokens, at_once in loads:
        load = Load("{}x{}".format(*picture), drawn_jpegs(*picture), tokens, at_once)
        row = measure_load(vlms, load, LONG_ROUNDS if tokens == LONG_TOKENS else rounds)
        rows.append(row)
        for way, told in row["ways"].items():
            first, whole = told["first_token_ms"]["median_ms"], told["round_ms"]["median_ms"]
            print(told_as, row_name(row), way, f"first {first:.2f}, all {whole:.2f}", told["stages_ms"], flush=True)
    return rows


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    need_gpu()
    results: dict[str, Any] = {"ceilings": ceilings(), "sizes": {}}
    for size in arguments.sizes:
        results["sizes"][size] = measure(size, arguments.rounds)
        gc.collect()
        torch.cuda.empty_cache()
        # After each size, so that a run that is cut off leaves what it has.
        write_report(arguments.out, "How long from the bytes of JPEGs to answers, alone and among others?", results)


if __name__ == "__main__":
    main()

"""How long does the image encoder take, as captured graphs and launched kernel by kernel?

    python benchmarks/encoder.py OUT.json [--sizes 450M 3B] [--rounds 30]

The rows of `foveate bench encoder`, ours alone, for both sizes in one file; what memory the graphs take, what padding
costs, and the rate of a large batch; and 3B with its products in float8, in turn with bfloat16. Input: patches on the
device, in bfloat16; output: image features. Random weights of the true sizes.
"""

import argparse
import copy
import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import FULL, SIZES, need_gpu, relative_error, time_interleaved, write_report

from foveate.bench.batches import TileRow, published_rows
from foveate.bench.ceilings import Ceilings, measure_ceilings
from foveate.bench.encoder import EncoderBenchmark
from foveate.bench.work import encoder_flops
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import GraphImageEncoder, capture_encoder
from foveate.graphs import EncoderGraphSettings
from foveate.kernels.availability import twins_only
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.tiles import TileShape
from foveate.testing import random_vlm

LARGE_BATCH = 32
FLOAT8_SIZE, FLOAT8_ROWS = "3B", ("5 tiles, 1280 tokens", "9 tiles, 2192 tokens")


def measure(size: str, rounds: int, ceilings: Ceilings) -> dict[str, Any]:
    """Measure every row of one size."""
    start = time.perf_counter()
    vlm = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", compilation_config={"cudagraph_mm_encoder": False})
    build_s = time.perf_counter() - start
    start = time.perf_counter()
    graph = capture_encoder(vlm.model, EncoderGraphSettings(), strict=True)
    capture_s = time.perf_counter() - start
    rows = {}
    for row in EncoderBenchmark(vlm.model, graph, ceilings, {}, rounds=rounds).measure(published_rows()):
        if not row.ways["graph"].is_right:
            raise SystemExit(f"{size} {row.name}: graphs and eager differ by {row.ways['graph'].error}")
        record = dataclasses.asdict(row)
        rows[row.name] = {**record.pop("ways"), **record}
        times = ", ".join(f"{name} {way.median_ms:.3f} ms" for name, way in row.ways.items())
        print(f"{size} {row.name}: {times}, least {row.floor_ms:.3f} ms", flush=True)
    return {
        "layout": SIZES[size],
        "rows": rows,
        **memory(graph),
        "build_s": round(build_s, 2),
        "capture_and_check_s": round(capture_s, 2),
        "padding": padding_costs(vlm.model, graph, rounds),
        "large_batch": large_batch(vlm.model, graph, rounds),
        "float8": float8(vlm.model, graph, rounds) if size == FLOAT8_SIZE else None,
    }


def large_batch(model: Lfm2VlModel, graph: GraphImageEncoder, rounds: int) -> dict[str, Any]:
    """Time many pictures of one full tile in one call, and count what is computed: real rows alone."""
    row = TileRow("", (TileShape(*FULL),) * LARGE_BATCH, (1,) * LARGE_BATCH)
    batch = row.batch(model.config, model.device, model.dtype)
    with torch.inference_mode():
        times = time_interleaved({"as planned": lambda: graph.encode(batch)}, rounds=rounds)["as planned"]
    teraflops = encoder_flops(model.config, row.tiles) / times["median_ms"] / 1e9
    print(f"{LARGE_BATCH} images of 512x512: {times}, {teraflops:.0f} TFLOP/s", flush=True)
    return {"images": LARGE_BATCH, **times, "teraflops_per_s": round(teraflops, 1)}


def float8(model: Lfm2VlModel, graph: GraphImageEncoder, rounds: int) -> dict[str, Any]:
    """Time the encoder in float8 on graphs of its own, in turn with bfloat16, and how far its features are from those
    of bfloat16 and of plain torch with the same scales."""
    fast = copy.deepcopy(model)
    fast.encoder.use_fp8()
    graph8 = capture_encoder(fast, EncoderGraphSettings(), strict=True)
    rows = {}
    for row in published_rows():
        if row.name not in FLOAT8_ROWS:
            continue
        batch = row.batch(model.config, model.device, model.dtype)
        with torch.inference_mode():
            usual, ours = (torch.cat(each.encode(batch).features) for each in (graph, graph8))
            with twins_only():
                plain = torch.cat(EagerImageEncoder(fast.encoder).encode(batch).features)
            calls = {"bfloat16": partial(graph.encode, batch), "float8": partial(graph8.encode, batch)}
            times = time_interleaved(calls, rounds=rounds)
        errors = {"from_bfloat16": relative_error(ours, usual), "from_plain_float8": relative_error(ours, plain)}
        rows[row.name] = {**times, **{name: round(value, 5) for name, value in errors.items()}}
        print(f"float8, {row.name}: {rows[row.name]}", flush=True)
    return rows


def memory(graph: GraphImageEncoder) -> dict[str, Any]:
    """Return what the graphs take, one by one and together."""
    manager = graph.manager
    held = manager.memory
    graphs = [
        {
            "tokens": report.capacity.tokens,
            "pool_mb": report.pool_bytes / 1e6,
            "replay_ms": report.replay_ms,
            "fault": report.fault,
        }
        for report in manager.reports
    ]
    return {
        "graphs": graphs,
        "pool_mb": held.pool_bytes / 1e6,
        "buffer_mb": held.buffer_bytes / 1e6,
        "card_mb": (held.free_before_bytes - held.free_after_bytes) / 1e6,
    }


def padding_costs(model: Lfm2VlModel, graph: GraphImageEncoder, rounds: int) -> dict[str, Any]:
    """Time 64 tokens replayed in a budget of 4096 against a full replay of that budget, and in its own budget."""
    # Fixed plans do not go by what replays cost, so the small batch is not run eagerly.
    settings = EncoderGraphSettings(encoder_cudagraph_token_budgets=(4096,), encoder_plan="fixed")
    large = capture_encoder(model, settings, strict=True)

    def batch(tiles: list[tuple[int, int]]) -> ImageBatch:
        row = TileRow("", tuple(TileShape(*tile) for tile in tiles), (len(tiles),))
        return row.batch(model.config, model.device, model.dtype)

    small, full = batch([(16, 16)]), batch([FULL] * 16)
    calls = {
        "64 tokens in 4096": lambda: large.encode(small),
        "4096 tokens in 4096": lambda: large.encode(full),
        "64 tokens in their own budget": lambda: graph.encode(small),
    }
    with torch.inference_mode():
        if large.encode(small).report.replays != (4096,):
            raise SystemExit("the small batch was not replayed in the graph of 4096 tokens")
        return time_interleaved(calls, rounds=rounds)


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    need_gpu()
    top = measure_ceilings(torch.device("cuda"), torch.bfloat16)
    print(f"ceilings: {top}", flush=True)
    results = {}
    for size in arguments.sizes:
        results[size] = measure(size, arguments.rounds, top)
        torch.cuda.empty_cache()
    ceilings = {"copy_terabytes_per_s": top.copy_terabytes_per_s, "bf16_teraflops_per_s": top.teraflops_per_s}
    question = "How long does the image encoder take, as graphs and eagerly?"
    write_report(arguments.out, question, {"ceilings": ceilings, "sizes": results})


if __name__ == "__main__":
    main()

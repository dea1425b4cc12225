"""How long does the image encoder take, as captured graphs and launched kernel by kernel?

    python benchmarks/encoder.py OUT.json [--sizes 450M 3B] [--rounds 30]

Input: patches on the device, in bfloat16; output: image features. Random weights of the true sizes. Each row first
checks that both ways agree; then both are timed in turn, host work included, waiting for the device after every call.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import SIZES, TILE_ROWS, ceilings, relative_error, time_interleaved, write_report

from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import capture_encoder
from foveate.graphs import EncoderGraphSettings
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape
from foveate.testing import random_vlm


def random_batch(tiles: list[tuple[int, int]], width: int) -> ImageBatch:
    """Return one picture of random pixels with these tiles."""
    shapes = tuple(TileShape(*tile) for tile in tiles)
    rows = sum(shape.num_patches for shape in shapes)
    patches = torch.rand(rows, width, device="cuda").mul_(2).sub_(1).to(torch.bfloat16)
    return ImageBatch(patches, shapes, (len(shapes),))


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Measure every row of one size."""
    start = time.perf_counter()
    vlm = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", compilation_config={"cudagraph_mm_encoder": False})
    build_s = time.perf_counter() - start
    start = time.perf_counter()
    graph = capture_encoder(vlm.model, EncoderGraphSettings(), strict=True)
    capture_s = time.perf_counter() - start
    manager, eager = graph.manager, EagerImageEncoder(vlm.model.encoder)
    rows = {}
    for name, tiles in TILE_ROWS.items():
        batch = random_batch(tiles, vlm.model.config.vision.patch_width)
        calls = {"eager": partial(eager.encode, batch), "graph": partial(graph.encode, batch)}
        with torch.inference_mode():
            error = relative_error(calls["graph"]().features[0], calls["eager"]().features[0])
            times = time_interleaved(calls, rounds=rounds)
        plan = manager.plan(batch)
        rows[name] = {**times, "budgets": [run.budget for run in plan.runs], "graph_against_eager_error": error}
        print(
            f"{size} {name}: eager {times['eager']['median_ms']:.3f} graph {times['graph']['median_ms']:.3f} ms",
            flush=True,
        )
    memory = manager.memory
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
        "layout": SIZES[size],
        "rows": rows,
        "graphs": graphs,
        "pool_mb": memory.pool_bytes / 1e6,
        "buffer_mb": memory.buffer_bytes / 1e6,
        "card_mb": (memory.free_before_bytes - memory.free_after_bytes) / 1e6,
        "build_s": round(build_s, 2),
        "capture_and_check_s": round(capture_s, 2),
        "padding": padding_costs(vlm, graph, rounds),
    }


def padding_costs(vlm: Any, graph: Any, rounds: int) -> dict[str, Any]:
    """Time 64 tokens replayed in a budget of 4096 against a full replay of that budget, and in its own budget."""
    large = capture_encoder(vlm.model, EncoderGraphSettings(encoder_cudagraph_token_budgets=(4096,)), strict=True)
    width = vlm.model.config.vision.patch_width
    small, full = random_batch([(16, 16)], width), random_batch([(32, 32)] * 16, width)
    calls = {
        "64 tokens in 4096": lambda: large.encode(small),
        "4096 tokens in 4096": lambda: large.encode(full),
        "64 tokens in their own budget": lambda: graph.encode(small),
    }
    with torch.inference_mode():
        return time_interleaved(calls, rounds=rounds)


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    top = ceilings()
    print(f"ceilings: {top}", flush=True)
    results = {}
    for size in arguments.sizes:
        results[size] = measure(size, arguments.rounds)
        torch.cuda.empty_cache()
    write_report(
        arguments.out,
        "How long does the image encoder take, as graphs and eagerly?",
        {"ceilings": top, "sizes": results},
    )


if __name__ == "__main__":
    main()

"""Is the encoder on graphs ever slower than kernel by kernel? Batches of 1 to 40 tiles, as pictures come.

    python benchmarks/never_slower.py OUT.json [--sizes 450M 3B] [--batches 100] [--pairs 6]

Random weights of the true sizes, bfloat16, patches on the device. Each batch is checked (graphs and eager agree), then
both are timed in turn, host work included, waiting for the device after every call; its ratio is the median over the
pairs. Then: what ran on graphs, the padding of a trace of pictures, and what the start takes the first time (costs are
measured, kernels perhaps compiled) and the second.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from common import SIZES, TRACE, ceilings, need_gpu, relative_error, write_report

from foveate.engine.encoding import EagerImageEncoder, ImageFeatureEncoder
from foveate.engine.graph_encoding import GraphImageEncoder, capture_encoder
from foveate.graphs import EncoderGraphSettings, MeasuredCosts
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape, plan_tiles
from foveate.testing import random_vlm

MOST_TILES = 40
ONE_PICTURE = 11
"""Tiles of the largest picture."""
LARGEST_ERROR = 2e-2

Pictures = list[tuple[TileShape, ...]]


def sampled_pictures(vlm: Any, count: int, seed: int) -> Iterator[Pictures]:
    """Batches whose numbers of tiles are spread evenly from 1 to 40: pictures of the trace as long as they fit."""
    draw, images = random.Random(seed), vlm.model.config.images
    cut = [plan_tiles(*size, images).tiles for size in TRACE]
    small = [plan_tiles(draw.randint(100, 700), draw.randint(100, 700), images).tiles for _ in range(20)]
    for index in range(count):
        left, pictures = 1 + index * MOST_TILES // count, []
        while left:
            fitting = [tiles for tiles in [*cut, draw.choice(small)] if len(tiles) <= left]
            pictures.append(draw.choice(fitting))
            left -= len(pictures[-1])
        yield pictures


def batch_of(pictures: Pictures, width: int) -> ImageBatch:
    """Random patches for these tiles."""
    tiles = tuple(tile for picture in pictures for tile in picture)
    rows = sum(tile.num_patches for tile in tiles)
    patches = torch.rand(rows, width, device="cuda").mul_(2).sub_(1).to(torch.bfloat16)
    return ImageBatch(patches, tiles, tuple(len(picture) for picture in pictures))


def time_ms(encoder: ImageFeatureEncoder, batch: ImageBatch) -> float:
    """One call, host work included."""
    start = time.perf_counter()
    encoder.encode(batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def compare(graph: GraphImageEncoder, eager: EagerImageEncoder, batch: ImageBatch, pairs: int) -> dict[str, Any]:
    """Check one batch and time it both ways."""
    ours, theirs = graph.encode(batch), eager.encode(batch)
    error = relative_error(torch.cat(ours.features), torch.cat(theirs.features))
    if not error <= LARGEST_ERROR:
        raise SystemExit(f"graphs and eager differ by {error:.1e} on {len(batch.tiles)} tiles")
    torch.cuda.synchronize()
    times = []
    for number in range(pairs):  # Either goes first in turn: who comes second finds the card as the other left it.
        if number % 2:
            theirs_ms, ours_ms = time_ms(eager, batch), time_ms(graph, batch)
        else:
            ours_ms, theirs_ms = time_ms(graph, batch), time_ms(eager, batch)
        times.append((ours_ms, theirs_ms))
    plan = graph.manager.plan(batch)
    return {
        "tiles": len(batch.tiles),
        "tokens": plan.tokens,
        "budgets": [run.budget for run in plan.runs],
        "tiles_on_graphs": sum(len(run.tiles) for run in plan.replays),
        "graph_ms": round(statistics.median(ours for ours, _ in times), 4),
        "eager_ms": round(statistics.median(theirs for _, theirs in times), 4),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in times), 4),
        "error": error,
    }


def trace_padding(graph: GraphImageEncoder, vlm: Any) -> float:
    """Padding among the rows replayed for the trace, one picture a batch."""
    padded = replayed = 0
    for size, count in TRACE.items():
        tiles = plan_tiles(*size, vlm.model.config.images).tiles
        plan = graph.manager.plan(ImageBatch(torch.empty(0), tiles, (len(tiles),)))
        padded += count * sum(run.padded_tokens for run in plan.replays)
        replayed += count * sum(run.budget or 0 for run in plan.replays)
    return padded / max(1, replayed)


def start(vlm: Any, *, is_first: bool) -> tuple[GraphImageEncoder, dict[str, Any]]:
    """Capture; returns the encoder, what the start took in seconds and what it holds in megabytes."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    graph = capture_encoder(vlm.model, EncoderGraphSettings(), strict=True, refresh_costs=is_first)
    torch.cuda.synchronize()
    total_s = time.perf_counter() - begin
    took, memory = graph.manager.start_up, graph.manager.memory
    return graph, {
        "total_s": round(total_s, 2),
        "capture_s": round(took.capture_s, 2),
        "check_s": round(took.check_s, 2),
        "costs_s": round(took.costs_s, 2),
        "cost_source": took.cost_source,
        "graphs": len(graph.manager.reports),
        "pool_mb": round(memory.pool_bytes / 1e6, 1),
        "buffer_mb": round(memory.buffer_bytes / 1e6, 1),
        "card_mb": round((memory.free_before_bytes - memory.free_after_bytes) / 1e6, 1),
    }


def measure(size: str, count: int, pairs: int) -> dict[str, Any]:
    """Measure one size."""
    vlm = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", compilation_config={"cudagraph_mm_encoder": False})
    graph, first = start(vlm, is_first=True)
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    graph, second = start(vlm, is_first=False)
    eager, width = EagerImageEncoder(vlm.model.encoder), vlm.model.config.vision.patch_width
    with torch.inference_mode():
        batches = [compare(graph, eager, batch_of(each, width), pairs) for each in sampled_pictures(vlm, count, seed=0)]
    costs = graph.manager.costs
    result = {
        "layout": SIZES[size],
        "first_start": first,
        "second_start": second,
        "trace_padded_share": trace_padding(graph, vlm),
        "costs": {"replays": dict(costs.replays), "eager": costs.eager} if isinstance(costs, MeasuredCosts) else None,
        "eager_runs_by_reason": dict(graph.manager.stats.eager_runs),
        "batches": batches,
    }
    return {**result, "summary": summarised(batches)}


def summarised(batches: list[dict[str, Any]]) -> dict[str, float]:
    """Distribution of the ratios, and the share of tiles on graphs."""
    ratios = sorted(batch["ratio"] for batch in batches)
    up_to_one = [batch for batch in batches if batch["tiles"] <= ONE_PICTURE]

    def share(some: list[dict[str, Any]]) -> float:
        return sum(batch["tiles_on_graphs"] for batch in some) / max(1, sum(batch["tiles"] for batch in some))

    return {
        "median_ratio": statistics.median(ratios),
        "p95_ratio": ratios[round(0.95 * (len(ratios) - 1))],
        "worst_ratio": ratios[-1],
        "best_ratio": ratios[0],
        "share_on_graphs": share(batches),
        "share_on_graphs_up_to_11_tiles": share(up_to_one),
    }


def show(size: str, result: dict[str, Any]) -> None:
    """Print what was found."""
    summary = result["summary"]
    print(
        f"{size}: graph : eager  median {summary['median_ratio']:.3f}, p95 {summary['p95_ratio']:.3f}, worst"
        f" {summary['worst_ratio']:.3f}, best {summary['best_ratio']:.3f}"
    )
    print(
        f"  tiles on graphs {summary['share_on_graphs']:.1%}, in batches of up to 11 tiles"
        f" {summary['share_on_graphs_up_to_11_tiles']:.1%}; eager runs {result['eager_runs_by_reason']}"
    )
    print(f"  padded rows of the trace {result['trace_padded_share']:.2%}")
    for name in ("first_start", "second_start"):
        print(f"  {name.replace('_', ' ')}: {result[name]}", flush=True)


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=6)
    arguments = parser.parse_args()
    need_gpu()
    top = ceilings()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, at most {top}", flush=True)
    results = {}
    for size in arguments.sizes:
        results[size] = measure(size, arguments.batches, arguments.pairs)
        show(size, results[size])
        gc.collect()
        torch.cuda.empty_cache()
    question = "Is the encoder on graphs ever slower than kernel by kernel?"
    write_report(
        arguments.out, question, {"ceilings": top, "trace": [[*size, n] for size, n in TRACE.items()], "sizes": results}
    )


if __name__ == "__main__":
    main()

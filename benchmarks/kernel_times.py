"""What does each kernel take, beside its twin in plain torch and the libraries' ways, at the sizes of the models?

    python benchmarks/kernel_times.py results.json [--only NAME]

Every way is checked against wider arithmetic before it is timed. A number is one launch inside a CUDA graph, so no host
time is in it; the ways of a piece of work are replayed in turn. Small operands are in the GPU's cache, as they are in a
model; weights of decode products are not. The table says which share of the copy bandwidth the bytes that must be moved
come to; ways that lose stand beside those that win.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from common import ceilings, need_gpu, relative_error, write_report
from kernel_cases import (
    Case,
    Launch,
    decode_contexts,
    decode_pieces,
    decode_steps,
    encoder_pieces,
    encoder_products,
    random_model,
    small_products,
    towers,
)
from prefill_cases import packed_convolutions, prefill_attentions

ROUNDS = 15
LAUNCHES = 20
"""Launches in a graph, of short work; less of long work."""
LONG_MS = 2.0
"""What a graph should take at most."""
LARGEST_ERROR = 2e-2
LARGEST_FP8_ERROR = 1e-1
"""Of one float8 product or norm."""
LARGEST_NETWORK_ERROR = {"bfloat16": 5e-2, "float8": 5e-1}
"""Of a whole tower or decode step: enough to find a wrong kernel; how near they are is asked by the tests."""

TEXT = {"350M": (1024, 16, 4608, 3072), "2.6B": (2048, 32, 10752, 6144)}
"""Width, heads, FFN width and rows of the convolution's gates."""


@dataclass(frozen=True)
class Measurement:
    """One way of doing one piece of work."""

    kernel: str
    shape: str
    way: str
    median_us: float
    p95_us: float
    share_of_copy: float
    """Bytes that must be moved, by the time and the measured copy bandwidth."""
    relative_error: float
    """Against wider arithmetic."""
    is_right: bool


def cases() -> Iterator[tuple[str, Iterator[Case]]]:
    """Every piece of work, by name; made when it is asked for."""
    for width in (768, 1152):
        for rows in (256, 1024, 5120, 11264):
            yield "encoder", encoder_pieces(rows, width)
    for rows in (256, 1024, 5120, 9216):
        for inputs, outputs in ((1152, 3456), (1152, 1152), (1152, 4304), (4304, 1152)):
            yield "fp8", encoder_products(rows, inputs, outputs)
    for width, heads, inner, projection in TEXT.values():
        for sequences in (1, 8, 64):
            yield "decode", decode_pieces(sequences, width, heads, inner)
        for sequences, context in ((1, 1024), (1, 32768), (8, 1024), (8, 8192), (32, 1024), (64, 2048)):
            yield "attention", decode_contexts(sequences, heads, context)
        for rows in (1, 2, 4):
            yield "products", small_products(rows, width, inner, projection)
    for width, heads, _, _ in TEXT.values():
        for new, cached, budget in (
            ([281], 0, None),
            ([281], 0, 2048),
            ([2334], 0, None),
            ([281] * 32, 0, None),
            ([286], 2048, 320),
            ([256], 32_000, None),
        ):
            yield "prefill", prefill_attentions(heads, new, cached, budget)
        for new in ([281], [281] * 32):
            yield "prefill", packed_convolutions(width, new)
    for name in ("450M", "3B"):
        yield f"whole {name}", whole(name)


def whole(name: str) -> Iterator[Case]:
    """Towers and decode steps of one model."""
    model = random_model(name)
    for tiles in (1, 3, 5, 11):
        yield from towers(model.encoder.tower, name, tiles)
    for sequences in (1, 8, 32):
        yield from decode_steps(model, name, sequences, 1024)


def measure(case: Case, terabytes_per_s: float) -> Iterator[Measurement]:
    """Check every way and time them in turn."""
    errors = {way: relative_error(launches[0](), case.exact) for way, launches in case.ways.items()}
    graphs = {way: captured(launches) for way, launches in case.ways.items()}
    times_us: dict[str, list[float]] = {way: [] for way in graphs}
    for _ in range(ROUNDS):
        events = {}
        for way, (graph, _) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            events[way] = begin, end
        torch.cuda.synchronize()
        for way, (begin, end) in events.items():
            times_us[way].append(begin.elapsed_time(end) * 1e3 / graphs[way][1])
    for way, times in times_us.items():
        median, p95 = statistics.median(times), sorted(times)[round(0.95 * (ROUNDS - 1))]
        share = case.num_bytes / median / 1e6 / terabytes_per_s
        yield Measurement(
            case.kernel, case.shape, way, median, p95, share, errors[way], errors[way] <= largest_error(case, way)
        )


def largest_error(case: Case, way: str) -> float:
    """The error beyond which a way is called wrong."""
    if case.kernel in ("tower", "decode step"):
        return LARGEST_NETWORK_ERROR["float8" if "float8" in way else "bfloat16"]
    return LARGEST_FP8_ERROR if "fp8" in case.kernel else LARGEST_ERROR


def captured(launches: list[Launch]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of some launches, each in its turn, and how many there are."""
    start = time.perf_counter()
    for launch in launches[:2]:
        launch()
    torch.cuda.synchronize()
    launch_ms = (time.perf_counter() - start) * 1e3 / min(len(launches), 2)
    count = max(len(launches), min(LAUNCHES, round(LONG_MS / launch_ms)), 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            launches[number % len(launches)]()
    graph.replay()
    return graph, count


@torch.inference_mode()
def main() -> None:
    """Print the ceilings and the table, write the JSON and end with its summary on one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the JSON file to write")
    parser.add_argument("--only", default="", help="encoder, fp8, decode, attention, products, prefill or whole")
    arguments = parser.parse_args()
    need_gpu()
    torch.backends.cuda.matmul.allow_tf32 = False
    start, limits = time.perf_counter(), ceilings()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, at most {limits}")
    measurements: list[Measurement] = []
    for group, pieces in cases():
        if not group.startswith(arguments.only):
            continue
        for case in pieces:
            for row in measure(case, limits["copy_terabytes_per_s"]):
                measurements.append(row)
                mark = "" if row.is_right else "  WRONG"
                print(
                    f"{row.kernel:26} {row.shape:30} {row.way:26} {row.median_us:9.1f} µs (p95 {row.p95_us:9.1f}) "
                    f"{100 * row.share_of_copy:5.0f} %  error {row.relative_error:.1e}{mark}",
                    flush=True,
                )
    wrong = [row for row in measurements if not row.is_right]
    results = {"ceilings": limits, "measurements": [asdict(row) for row in measurements]}
    write_report(arguments.results, "What does each kernel take, beside plain torch and the libraries?", results)
    summary = {"rows": len(measurements), "wrong": len(wrong), "seconds": round(time.perf_counter() - start, 1)}
    print(json.dumps({"benchmark": "kernels", "gpu": torch.cuda.get_device_name(), **summary}))
    if wrong:
        raise SystemExit(f"{len(wrong)} rows are wrong")


if __name__ == "__main__":
    main()

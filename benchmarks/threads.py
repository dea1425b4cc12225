"""Who waits for whom when many requests come at once? Threads that cut pictures, and how long a thread's turn is.

    python benchmarks/threads.py OUT.json [--size 450M] [--at-once 32]

One JPEG of 512x512 pixels and 64 tokens a request, random weights of the true sizes in bfloat16, no features kept. For
each way: milliseconds until all are answered and until the median first token, and what the parts of the engine's own
thread and of the preparing threads took in all, waiting for Python's lock included.
"""

import argparse
import functools
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import SIZES, need_gpu, write_report

from foveate import VLM, EngineSettings
from foveate.bench.serving import answers
from foveate.bench.serving_pictures import drawn_jpegs
from foveate.engine import launcher, preparation, worker
from foveate.testing import random_vlm

PARTS: tuple[tuple[Any, str], ...] = (
    (preparation.Preparation, "_decode"),
    (preparation.Preparation, "_finish"),
    (worker.Worker, "_admit"),
    (worker.Worker, "_encode"),
    (launcher.Launcher, "_launch_prefill"),
    (launcher.Launcher, "_launch_decode"),
    (worker.Worker, "_read"),
)
WAYS = ((4, 5e-3), (4, 5e-4), (4, 2e-4), (1, 5e-4), (2, 5e-4), (8, 5e-4))
"""Threads that prepare, and the seconds of a turn."""
TOKENS, ROUNDS, WARM_UPS = 64, 5, 2


def timed(totals: dict[str, float]) -> None:
    """Have every part add what it takes to `totals`, in milliseconds."""
    for owner, name in PARTS:
        part = getattr(owner, name)

        @functools.wraps(part)
        def call(*given: Any, _part: Any = part, _name: str = name.strip("_"), **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return _part(*given, **named)
            finally:
                totals[_name] += (time.perf_counter() - start) * 1e3

        setattr(owner, name, call)


def measure(base: VLM, totals: dict[str, float], at_once: int, threads: int, turn_s: float) -> dict[str, Any]:
    """Measure one way."""
    settings = EngineSettings(image_cache_megabytes=0, cache_megabytes=4000, pixel_threads=threads)
    pictures = [drawn_jpegs(512, 512)[index % 8] for index in range(at_once)]
    whole, first, parts = [], [], []
    with VLM(base.model, base.processor, base.encoder, settings=settings) as vlm:
        vlm.start_engine()
        sys.setswitchinterval(turn_s)  # behind the engine's own
        for number in range(WARM_UPS + ROUNDS):
            totals.clear()
            start = time.perf_counter()
            made = answers(vlm, pictures, TOKENS)
            if number >= WARM_UPS:
                whole.append((time.perf_counter() - start) * 1e3)
                first.append(statistics.median(answer.token_times_ms[0] for answer in made))
                parts.append(dict(totals))
    return {
        "threads": threads,
        "turn_ms": turn_s * 1e3,
        "all_ms": round(statistics.median(whole), 1),
        "first_ms": round(statistics.median(first), 1),
        "parts_ms": {name: round(statistics.median(each.get(name, 0.0) for each in parts), 1) for name in parts[0]},
    }


def main() -> None:
    """Measure every way and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="450M", choices=list(SIZES))
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layout", help="instead of that of the size")
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda"):
        need_gpu()
    totals: dict[str, float] = defaultdict(float)
    base = random_vlm(arguments.layout or SIZES[arguments.size], device=arguments.device, dtype="bfloat16")
    timed(totals)
    rows = []
    for threads, turn_s in WAYS:
        rows.append(measure(base, totals, arguments.at_once, threads, turn_s))
        print(rows[-1], flush=True)
    results = {"size": arguments.size, "at_once": arguments.at_once, "ways": rows}
    write_report(arguments.out, "Who waits for whom when many requests come at once?", results)


if __name__ == "__main__":
    main()

"""What the benchmark scripts share: sizes, timing in interleaved pairs, ceilings, and the JSON they leave."""

import dataclasses
import datetime
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from foveate.machine import machine_card

SIZES = {"450M": "LFM2.5-VL-450M", "3B": "LFM2.5-VL-3B"}
"""Layouts whose encoders and language models are measured: the smallest and the largest."""

FULL = (32, 32)
TILE_ROWS: dict[str, list[tuple[int, int]]] = {
    "1 tile, 64 tokens": [(16, 16)],
    "1 tile, 256 tokens": [FULL],
    "3 tiles, 704 tokens": [FULL, FULL, (24, 32)],
    "4 tiles, 832 tokens": [*[FULL] * 3, (16, 16)],
    "5 tiles, 1280 tokens": [FULL] * 5,
    "7 tiles, 1696 tokens": [*[FULL] * 6, (20, 32)],
    "9 tiles, 2192 tokens": [*[FULL] * 8, (18, 32)],
    "11 tiles, 2688 tokens": [*[FULL] * 10, (16, 32)],
}
"""Patch rows and columns of the tiles in each row of the encoder tables."""

TRACE = {
    (1920, 1080): 20,
    (3024, 4032): 15,
    (1024, 1024): 15,
    (512, 512): 10,
    (640, 480): 10,
    (1280, 720): 10,
    (1170, 2532): 10,
    (768, 1376): 10,
}
"""Pictures by width and height: how many in a hundred are such. Screens, photographs, telephones and squares."""


def time_interleaved(calls: Mapping[str, Callable[[], Any]], *, rounds: int = 30, warm_ups: int = 4) -> dict[str, Any]:
    """Call each in turn, `rounds` times, waiting for the device after every call; returns milliseconds by name."""
    for _ in range(warm_ups):
        for call in calls.values():
            call()
    torch.cuda.synchronize()
    times_ms: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times_ms[name].append((time.perf_counter() - start) * 1e3)
    return {name: summary(values) for name, values in times_ms.items()}


def summary(values_ms: list[float]) -> dict[str, float]:
    """Return median, 95th percentile and least of some milliseconds."""
    ordered = sorted(values_ms)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return {"median_ms": round(statistics.median(ordered), 4), "p95_ms": round(p95, 4), "min_ms": round(ordered[0], 4)}


def relative_error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the relative norm of the difference."""
    return float((ours.float() - reference.float()).norm() / reference.float().norm())


def ceilings() -> dict[str, float]:
    """Measure what this card can do at most: bytes copied and bf16 products a second."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_ms = time_interleaved({"copy": lambda: target.copy_(source)}, rounds=10)["copy"]["median_ms"]
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product_ms = time_interleaved({"product": lambda: a @ b}, rounds=10)["product"]["median_ms"]
    return {
        "copy_terabytes_per_s": round(2 * source.nbytes / copy_ms / 1e9, 3),
        "bf16_teraflops_per_s": round(2 * 8192**3 / product_ms / 1e9, 1),
    }


def write_report(path: Path, question: str, results: Mapping[str, Any]) -> None:
    """Write one JSON file: the question, the machine card, the date and the results."""
    card = dataclasses.asdict(machine_card())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    report = {"question": question, "date": today, "machine": card, **results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

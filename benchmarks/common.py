"""What the benchmark scripts share with each other; what they share with `foveate bench` is imported from there."""

import torch

from foveate.bench.batches import FULL, TILE_ROWS
from foveate.bench.ceilings import measure_ceilings
from foveate.bench.report import write_report
from foveate.bench.timing import relative_error, summary, time_interleaved

__all__ = [
    "FULL",
    "SIZES",
    "TILE_ROWS",
    "TRACE",
    "ceilings",
    "need_gpu",
    "relative_error",
    "summary",
    "time_interleaved",
    "write_report",
]

SIZES = {"450M": "LFM2.5-VL-450M", "3B": "LFM2.5-VL-3B"}
"""Layouts whose encoders and language models are measured: the smallest and the largest."""

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


def need_gpu(capability: tuple[int, int] = (0, 0)) -> None:
    """End with one sentence where there is no NVIDIA GPU of this compute capability."""
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs an NVIDIA GPU: torch.cuda.is_available() is false.")
    if torch.cuda.get_device_capability() < capability:
        raise SystemExit(f"This benchmark needs an NVIDIA GPU of compute capability {'.'.join(map(str, capability))}.")


def ceilings() -> dict[str, float]:
    """Measure what this card can do at most: bytes copied and bf16 products a second."""
    measured = measure_ceilings(torch.device("cuda"), torch.bfloat16)
    return {
        "copy_terabytes_per_s": measured.copy_terabytes_per_s,
        "bf16_teraflops_per_s": round(measured.teraflops_per_s, 1),
    }

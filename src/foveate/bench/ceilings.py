"""What a device can do at most: bytes copied and products summed, measured, not taken from a data sheet."""

from dataclasses import dataclass

import torch

from foveate.bench.timing import time_interleaved

COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}
MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}


@dataclass(frozen=True)
class Ceilings:
    """Two rates that nothing here exceeds."""

    copy_terabytes_per_s: float
    """Bytes read and written by a copy on the device, 10^12 a second."""
    teraflops_per_s: float
    """Floating-point operations of a large matrix product, 10^12 a second."""
    dtype: str
    """The type of that product's numbers."""


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Measure both rates; the best of ten calls counts, as nothing is to exceed them."""
    source = torch.empty(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    side = MATRIX_SIDE[device.type]
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    times = time_interleaved({"copy": lambda: target.copy_(source), "product": lambda: a @ b}, rounds=10)
    return Ceilings(
        copy_terabytes_per_s=round(2 * source.nbytes / times["copy"]["min_ms"] / 1e9, 3),
        teraflops_per_s=round(2 * side**3 / times["product"]["min_ms"] / 1e9, 3),
        dtype=str(dtype).removeprefix("torch."),
    )

"""How far a kernel and its twin are from the truth."""

import torch
from torch import Tensor

FLOAT32_BOUND = 1e-6
"""Relative error of a kernel in float32 against float64."""


def relative_error(out: Tensor, exact: Tensor) -> float:
    """The norm of the difference over the norm of the truth."""
    exact = exact.double()
    return ((out.double() - exact).norm() / exact.norm().clamp_min(1e-30)).item()


def is_as_right(out: Tensor, twin: Tensor, exact: Tensor) -> bool:
    """Whether a result is at most twice as far from the truth as plain torch in the same type."""
    bound = FLOAT32_BOUND if out.dtype == torch.float32 else 2 * relative_error(twin, exact)
    return relative_error(out, exact) <= bound


def random(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    """Normal numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)

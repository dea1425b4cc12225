"""Rotary position embedding over the whole head, first half against second half."""

import torch
from torch import Tensor


def rotary_angles(positions: Tensor, head_size: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine `[rows, 1, head_size]` of `positions` `[rows]`, computed in float32, cast to
    `dtype`."""
    exponent = torch.arange(0, head_size, 2, device=positions.device, dtype=torch.float32) / head_size
    angles = positions[:, None].float() * (1.0 / theta**exponent)
    angles = torch.cat((angles, angles), -1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate `heads` `[rows, heads, head_size]` by the angles of their rows."""
    first, second = heads.chunk(2, -1)
    return heads * cosine + torch.cat((-second, first), -1) * sine

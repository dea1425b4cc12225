"""Rotary position embedding over the whole head, first half against second half."""

from functools import lru_cache

import torch
from torch import Tensor

from foveate.errors import DeviceError


def rotary_frequencies(head_size: int, theta: float, device: torch.device) -> Tensor:
    """Return the angle that each pair of channels turns by in one position, float32 `[head_size / 2]`."""
    exponent = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
    return 1.0 / theta**exponent


@lru_cache(maxsize=16)
def kept_rotary_table(
    head_size: int, theta: float, most_positions: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The cosines and sines that `rotary_angles` gives each position, made once: every layer and step reads the same.

    Returns `[most_positions, 2, head_size / 2]` in `dtype`, cosines first: the second half of a head has the angles of
    the first. Raises DeviceError when it is first asked for inside a capture, where it would belong to that graph
    alone.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise DeviceError("the rotary angles are not there yet: run the model once before it is captured")
    with torch.inference_mode(mode=False):
        positions = torch.arange(most_positions, device=device)
        angles = positions[:, None].float() * rotary_frequencies(head_size, theta, device)
        return torch.stack((angles.cos().to(dtype), angles.sin().to(dtype)), 1)


def rotary_angles(positions: Tensor, head_size: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine `[rows, 1, head_size]` of `positions` `[rows]`, computed in float32, cast to
    `dtype`."""
    angles = positions[:, None].float() * rotary_frequencies(head_size, theta, positions.device)
    angles = torch.cat((angles, angles), -1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate `heads` `[rows, heads, head_size]` by the angles of their rows."""
    first, second = heads.chunk(2, -1)
    return heads * cosine + torch.cat((-second, first), -1) * sine

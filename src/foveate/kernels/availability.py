"""Which implementation of a kernel runs where, in words, for `foveate doctor`."""

from importlib.util import find_spec

import torch


def attention_backend(device: torch.device) -> str:
    """Return what `foveate.kernels.attention.attention` runs on `device`."""
    has_triton = find_spec("triton") is not None
    return "Triton, packed rows" if device.type == "cuda" and has_triton else "torch, tile by tile"

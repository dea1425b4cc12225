"""Which implementation of a kernel runs where: Triton's on a GPU, its plain torch twin elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""There is no Triton for macOS, nor with the CPU builds of torch."""

_TWINS_ONLY: ContextVar[bool] = ContextVar("twins_only", default=False)
_FAULTS: list[str] = []


def runs_triton(*tensors: Tensor) -> bool:
    """Whether work on these tensors goes to a Triton kernel: on CUDA, with Triton, and where no gradient is wanted.

    The kernels have no backward pass, so a model in training runs the twins. So does everything once `switch_off` has
    been called.
    """
    if not HAS_TRITON or _FAULTS or _TWINS_ONLY.get():
        return False
    return all(tensor.is_cuda and not tensor.requires_grad for tensor in tensors)


@cache
def can_overlap(device: torch.device) -> bool:
    """Whether a launch on this device may begin while the one before it ends (programmatic dependent launch)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@contextmanager
def twins_only() -> Iterator[None]:
    """Run the twins on this thread in the block, to compare with."""
    token = _TWINS_ONLY.set(True)
    try:
        yield
    finally:
        _TWINS_ONLY.reset(token)


def switch_off(reason: str) -> None:
    """Run the twins from now on, in the whole process: a kernel is wrong on this machine."""
    _FAULTS.append(reason)


def fault() -> str | None:
    """Return why the kernels were switched off, or None."""
    return _FAULTS[0] if _FAULTS else None


def attention_backend(device: torch.device) -> str:
    """Return what `foveate.kernels.attention.attention` runs on `device`, in words, for `foveate doctor`."""
    return "Triton, packed rows" if device.type == "cuda" and HAS_TRITON else "torch, tile by tile"


def decode_steps(device: torch.device) -> str:
    """Return how the language model's decode steps run on `device`, in words, for `foveate doctor`."""
    if device.type != "cuda" or not HAS_TRITON or _FAULTS:
        because = f" (Triton's are switched off: {_FAULTS[0]})" if _FAULTS else ""
        return f"decode steps kernel by kernel in plain torch{because}"
    return "decode steps as captured graphs; kernels: Triton"

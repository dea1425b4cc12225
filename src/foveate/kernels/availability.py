"""Which implementation of a kernel runs where: Triton's on a GPU, its plain torch twin elsewhere.

And how the launches of the former follow each other. From compute capability 9.0 on they overlap (programmatic
dependent launch): a kernel says right at its beginning that the next one may be set up (`gdc_launch_dependents`), and
before it touches anything that is ever written on the device it waits (`gdc_wait`) until the launches before it have
ended and what they wrote is there. Why that is as safe as one launch after the other, if each kernel keeps to this:

- Every program waits, before any return. So a launch ends only after the one before it has, and that one only after its
  own predecessor: to wait for the last launch is to wait for all of them, though it may have begun before they ended.
- Nothing is stored before the wait. So memory that the allocator hands on, from a tensor that an earlier launch still
  reads to one that this launch writes, is written when the reader has ended.
- What is read before it are constants, and of the model alone: weights, norms, biases. Whoever writes those must have
  ended before the launch in front of the reader began, as everything in front of a copy from the host or a library's
  kernel has. What a run may make by itself (sums of biases, bounds, tables of pages) is no constant.
- A launch without the attribute, a library's kernel or a copy, begins when all before it has ended, whatever that said.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""There is no Triton for macOS, nor with the CPU builds of torch."""

MOST_OVERLAPPED_ROWS = 5120
"""The most rows of a launch that overlaps: five full tiles, where towers still gain 1 % by it. With eleven they lose as
much. Decode steps and single tiles gain 2 to 8 %."""

_TWINS_ONLY: ContextVar[bool] = ContextVar("twins_only", default=False)
_FAULTS: list[str] = []


def runs_triton(*tensors: Tensor) -> bool:
    """Whether work on these tensors goes to a Triton kernel: on CUDA, with Triton, and where no gradient is wanted.

    The kernels have no backward pass, so a model in training runs the twins. So does everything once `switch_off` has
    been called.
    """
    if not HAS_TRITON or is_twins_only():
        return False
    return all(tensor.is_cuda and not tensor.requires_grad for tensor in tensors)


@cache
def can_overlap(device: torch.device) -> bool:
    """Whether a launch on this device may begin while the one before it ends (programmatic dependent launch)."""
    is_nvidia = device.type == "cuda" and torch.version.cuda is not None
    return is_nvidia and torch.cuda.get_device_capability(device) >= (9, 0)


def launch_options(device: torch.device, rows: int, overlaps: bool | None = None) -> dict[str, bool]:
    """Return what a kernel of ours is launched with, on `rows` rows, so that it overlaps the launch before it or not.

    overlaps: True takes compute capability 9.0; by default whether the device can and rows are few enough.
    """
    if overlaps is None:
        overlaps = rows <= MOST_OVERLAPPED_ROWS and can_overlap(device)
    if overlaps:
        return {"overlaps": True, "launch_pdl": True}
    return {"overlaps": False}


@contextmanager
def twins_only() -> Iterator[None]:
    """Run the twins on this thread in the block, to compare with."""
    token = _TWINS_ONLY.set(True)
    try:
        yield
    finally:
        _TWINS_ONLY.reset(token)


def is_twins_only() -> bool:
    """Whether this thread is in such a block, or the kernels were switched off."""
    return bool(_FAULTS) or _TWINS_ONLY.get()


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

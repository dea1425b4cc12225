"""Small host tensors to a device, without making the host wait for what the device does meanwhile."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on `device`, copied on its current stream; through page-locked memory on CUDA.

    A plain `.to` or `torch.tensor(…, device=…)` would wait until the stream has done all that it was given before.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)

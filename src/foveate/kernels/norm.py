"""Root-mean-square normalisation."""

import torch
from torch import Tensor


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of `hidden` in float32, cast back, then multiply by `weight`.

    The cast before the product is the reference's (`Lfm2RMSNorm` in transformers); the other order differs in low
    precision.
    """
    wide = hidden.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(hidden.dtype)

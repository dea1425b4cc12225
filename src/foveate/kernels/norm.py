"""Root-mean-square normalisation, by itself and with the residual sum before it."""

import torch
from torch import Tensor

from foveate.kernels.availability import launch_options, runs_triton


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of `hidden` in float32, cast back, then multiply by `weight`.

    The cast before the product is the reference's (`Lfm2RMSNorm` in transformers); the other order differs in low
    precision.
    """
    wide = hidden.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(hidden.dtype)


def add_rms_norm(hidden: Tensor, branch: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`add_rms_norm_triton` on a GPU with Triton, `add_rms_norm_reference` elsewhere."""
    if runs_triton(hidden, weight):
        return add_rms_norm_triton(hidden, branch, weight, eps)
    return add_rms_norm_reference(hidden, branch, weight, eps)


def add_rms_norm_reference(hidden: Tensor, branch: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return `hidden + branch`, or `hidden` itself where there is no branch, and its `rms_norm`.

    hidden, branch: `[rows, width]`, contiguous. weight: `[width]`. The sum is rounded before it is normalised.
    """
    total = hidden if branch is None else hidden + branch
    return total, rms_norm(total, weight, eps)


def add_rms_norm_triton(hidden: Tensor, branch: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """What `add_rms_norm_reference` computes, in one launch, with the same roundings.

    Raises ValueError for rows that are not contiguous, or a branch of another shape.
    """
    from foveate.kernels.norm_kernel import add_rms_norm_kernel

    rows, width = hidden.shape
    for name, tensor in (("hidden", hidden), ("branch", branch)):
        if tensor is not None and (tensor.shape != (rows, weight.shape[0]) or not tensor.is_contiguous()):
            raise ValueError(
                f"{name} must be [{rows}, {weight.shape[0]}], contiguous: got {list(tensor.shape)}, "
                f"strides {tensor.stride()}."
            )
    out = torch.empty_like(hidden)
    total = hidden if branch is None else torch.empty_like(hidden)
    block = 1 << (width - 1).bit_length()
    if rows:
        with torch.cuda.device_of(hidden):
            add_rms_norm_kernel[rows,](
                hidden,
                branch,
                weight,
                total,
                out,
                eps,
                width=width,
                block=block,
                num_warps=4,
                **launch_options(hidden.device, rows),
            )
    return total, out

"""Layer normalisation of rows that still lack a constant, for the vision encoder.

The encoder's residual products leave their biases out, so that each is one matrix product that adds into the hidden
rows in place. What the rows lack is one vector for all of them, the sum of the biases so far, and the next norm adds it
as it reads: see `foveate.models.lfm2_vl.vision`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.availability import launch_options, runs_triton

__all__ = ["layer_norm", "layer_norm_reference", "layer_norm_triton", "piece_widths", "row_warps"]

WIDE = 2048
"""Channels beyond which a row is given to more than one warp."""


def layer_norm(hidden: Tensor, offset: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`layer_norm_triton` on a GPU with Triton, `layer_norm_reference` elsewhere."""
    if runs_triton(hidden, weight, bias):
        return layer_norm_triton(hidden, offset, weight, bias, eps)
    return layer_norm_reference(hidden, offset, weight, bias, eps)


def layer_norm_reference(hidden: Tensor, offset: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return the layer norm of `hidden + offset`, computed in float32 and rounded once to the type of `hidden`.

    hidden: `[rows, width]`, contiguous. offset: float32 `[width]`, or None. weight, bias: `[width]`.
    """
    wide = hidden.float() if offset is None else hidden.float() + offset
    return F.layer_norm(wide, weight.shape, weight.float(), bias.float(), eps).to(hidden.dtype)


def layer_norm_triton(
    hidden: Tensor, offset: Tensor | None, weight: Tensor, bias: Tensor, eps: float, *, warps: int | None = None
) -> Tensor:
    """What `layer_norm_reference` computes, in one pass over the rows.

    warps: of the program of a row, by default `row_warps`.

    Raises ValueError for rows that are not contiguous, or an offset of another shape or type.
    """
    from foveate.kernels.layer_norm_kernel import layer_norm_kernel

    width = weight.shape[0]
    if hidden.dim() != 2 or hidden.shape[1] != width or not hidden.is_contiguous():
        raise ValueError(
            f"hidden must be [rows, {width}], contiguous: got {list(hidden.shape)}, strides {hidden.stride()}."
        )
    check_offset(offset, width)
    out = torch.empty_like(hidden)
    main, rest = piece_widths(width)
    if hidden.shape[0]:
        with torch.cuda.device_of(hidden):
            layer_norm_kernel[hidden.shape[0],](
                hidden,
                offset,
                weight,
                bias,
                out,
                eps,
                width=width,
                main=main,
                rest=rest,
                num_warps=warps or row_warps(width),
                **launch_options(hidden.device, hidden.shape[0]),
            )
    return out


def piece_widths(width: int) -> tuple[int, int]:
    """Return how many channels the two pieces of a row of `width` are laid out for, powers of two.

    The first is the largest below the width, so all of its channels exist; a width of 1 has it alone.
    """
    main = 1 << max((width - 1).bit_length() - 1, 0)
    return main, 1 << (max(width - main, 1) - 1).bit_length()


def row_warps(width: int) -> int:
    """Return how many warps a row of `width` channels gets.

    A single one keeps its sums to itself, and needs no shared memory; a wide row would not fit into its registers.
    """
    return 4 if width > WIDE else 1


def check_offset(offset: Tensor | None, width: int) -> None:
    """Raises ValueError unless `offset` is None or a float32 vector of `width` channels."""
    if offset is None or (offset.shape == (width,) and offset.dtype == torch.float32 and offset.is_contiguous()):
        return
    raise ValueError(f"offset must be float32 [{width}], contiguous: got {offset.dtype} {list(offset.shape)}.")

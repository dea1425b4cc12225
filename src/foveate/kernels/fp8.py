"""Matrix products in float8 (e4m3), and what brings their operands there: a scale for each row, on either side.

The largest value of a row becomes 448, the largest that e4m3 has. The rows of a weight are its output channels. On a
GPU the products are the library's (`torch._scaled_mm`), and the roundings to float8 are part of the norm and of the
GELU; elsewhere the twins multiply what the float8 numbers stand for, in float32.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.layer_norm import check_offset, layer_norm_reference, piece_widths, row_warps

__all__ = [
    "Fp8Rows",
    "fp8_linear",
    "fp8_linear_reference",
    "gelu_fp8",
    "gelu_fp8_reference",
    "gelu_fp8_triton",
    "layer_norm_fp8",
    "layer_norm_fp8_reference",
    "layer_norm_fp8_triton",
    "quantise",
    "quantise_reference",
    "quantise_triton",
]

LARGEST = 448.0
"""The largest number of e4m3."""

STEP = 1 / LARGEST
"""What a row's largest value is multiplied by to be its scale. A division by 448 would be one on a CPU, but torch turns
it into this product on a GPU: multiplied wherever it runs, a row gets the same bits."""

SMALLEST = 1e-12
"""A row whose largest value is below is scaled as if this were it: a row of zeros stays zeros."""


@dataclass(frozen=True)
class Fp8Rows:
    """Rows in float8. What they stand for is `values * scales`."""

    values: Tensor
    """`[rows, width]` float8_e4m3fn."""
    scales: Tensor
    """`[rows, 1]` float32."""

    def wide(self) -> Tensor:
        """Return the numbers they stand for, `[rows, width]` float32."""
        return self.values.float() * self.scales

    def copy_(self, other: "Fp8Rows") -> None:
        """Take the numbers of other rows of the same shape, in place."""
        self.values.copy_(other.values)
        self.scales.copy_(other.scales)


def quantise(rows: Tensor) -> Fp8Rows:
    """`quantise_triton` on a GPU with Triton, `quantise_reference` elsewhere."""
    return quantise_triton(rows) if runs_triton(rows) else quantise_reference(rows)


def quantise_reference(rows: Tensor) -> Fp8Rows:
    """Round rows `[rows, width]` of any float type to float8."""
    wide = rows.float()
    scales = wide.abs().amax(-1, keepdim=True).clamp(min=SMALLEST) * STEP
    return Fp8Rows((wide * scales.reciprocal()).to(torch.float8_e4m3fn), scales)


def quantise_triton(rows: Tensor, *, warps: int | None = None) -> Fp8Rows:
    """What `quantise_reference` computes, in one launch and with its bits; ValueError unless the rows are contiguous.

    warps: of the program of a row, by default `row_warps`.
    """
    from foveate.kernels.fp8_kernel import quantise_kernel

    return _launch(quantise_kernel, rows, warps)


def gelu_fp8(rows: Tensor) -> Fp8Rows:
    """`gelu_fp8_triton` on a GPU with Triton, `gelu_fp8_reference` elsewhere."""
    return gelu_fp8_triton(rows) if runs_triton(rows) else gelu_fp8_reference(rows)


def gelu_fp8_reference(rows: Tensor) -> Fp8Rows:
    """Round the GELU (tanh form, in float32) of rows `[rows, width]` to float8."""
    return quantise_reference(F.gelu(rows.float(), approximate="tanh"))


def gelu_fp8_triton(rows: Tensor, *, warps: int | None = None) -> Fp8Rows:
    """What `gelu_fp8_reference` computes, in one launch; ValueError unless the rows are contiguous.

    warps: of the program of a row, by default `row_warps`.
    """
    from foveate.kernels.fp8_kernel import gelu_fp8_kernel

    return _launch(gelu_fp8_kernel, rows, warps)


def layer_norm_fp8(
    hidden: Tensor, branch: Tensor | None, offset: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Fp8Rows:
    """`layer_norm_fp8_triton` on a GPU with Triton, `layer_norm_fp8_reference` elsewhere."""
    if runs_triton(hidden, weight, bias):
        return layer_norm_fp8_triton(hidden, branch, offset, weight, bias, eps)
    return layer_norm_fp8_reference(hidden, branch, offset, weight, bias, eps)


def layer_norm_fp8_reference(
    hidden: Tensor, branch: Tensor | None, offset: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Fp8Rows:
    """Add `branch`, if there is one, to `hidden` in place, and round the layer norm of `hidden + offset` to float8.

    hidden, branch: `[rows, width]`, contiguous. offset: float32 `[width]`. weight, bias: `[width]`. The sum with the
    branch is rounded to the type of `hidden`, the norm is not rounded before it becomes float8.
    """
    if branch is not None:
        hidden.add_(branch)
    return quantise_reference(layer_norm_reference(hidden.float(), offset, weight, bias, eps))


def layer_norm_fp8_triton(
    hidden: Tensor,
    branch: Tensor | None,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    *,
    warps: int | None = None,
) -> Fp8Rows:
    """What `layer_norm_fp8_reference` computes, in one launch; ValueError for other shapes or layouts.

    warps: of the program of a row, by default `row_warps`.
    """
    from foveate.kernels.fp8_kernel import layer_norm_fp8_kernel

    rows, width = hidden.shape[0], weight.shape[0]
    check_offset(offset, width)
    for name, tensor in (("hidden", hidden), ("branch", branch)):
        if tensor is not None and (tensor.shape != (rows, width) or not tensor.is_contiguous()):
            raise ValueError(
                f"{name} must be [{rows}, {width}], contiguous: got {list(tensor.shape)}, strides {tensor.stride()}."
            )
    out = _empty(hidden)
    main, rest = piece_widths(width)
    if rows:
        with torch.cuda.device_of(hidden):
            layer_norm_fp8_kernel[rows,](
                hidden,
                branch,
                offset,
                weight,
                bias,
                out.values,
                out.scales,
                eps,
                SMALLEST,
                STEP,
                width=width,
                main=main,
                rest=rest,
                num_warps=warps or row_warps(width),
                **launch_options(hidden.device, rows),
            )
    return out


def fp8_linear(rows: Fp8Rows, weight: Fp8Rows, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `rows @ weight.T + bias` `[rows, outputs]` in `dtype`; `weight` is `[outputs, inputs]`, bias in `dtype`.

    On CUDA this takes compute capability 9.0, widths that are multiples of 16, and bfloat16 as `dtype`. Sums are
    taken with the tensor cores' fast accumulation.
    """
    if not rows.values.is_cuda:
        return fp8_linear_reference(rows, weight, bias, dtype)
    return torch._scaled_mm(
        rows.values,
        weight.values.t(),
        scale_a=rows.scales,
        scale_b=weight.scales.t(),
        bias=bias,
        out_dtype=dtype,
        use_fast_accum=True,
    )


def fp8_linear_reference(rows: Fp8Rows, weight: Fp8Rows, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What `fp8_linear` computes: the product of what the float8 numbers stand for, in float32, rounded once."""
    return F.linear(rows.wide(), weight.wide(), None if bias is None else bias.float()).to(dtype)


def _empty(rows: Tensor) -> Fp8Rows:
    values = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=rows.device)
    return Fp8Rows(values, torch.empty(rows.shape[0], 1, dtype=torch.float32, device=rows.device))


def _launch(kernel: Any, rows: Tensor, warps: int | None) -> Fp8Rows:
    if rows.dim() != 2 or not rows.is_contiguous():
        raise ValueError(f"rows must be [rows, width], contiguous: got {list(rows.shape)}, strides {rows.stride()}.")
    out, (count, width) = _empty(rows), rows.shape
    main, rest = piece_widths(width)
    if count:
        with torch.cuda.device_of(rows):
            kernel[count,](
                rows,
                out.values,
                out.scales,
                SMALLEST,
                STEP,
                width=width,
                main=main,
                rest=rest,
                num_warps=warps or row_warps(width),
                **launch_options(rows.device, len(rows)),
            )
    return out

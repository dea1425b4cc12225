"""The gated FFN of the language model: `silu(gate) * up`, and matrix products of very few rows.

With one to four rows a product is bound by reading its weight. The Triton forms of such products read it with all
multiprocessors at once, and put the gate into the same launch. Which is faster, they or the library's, depends on the
shape: `benchmarks/kernel_times.py` measures both, and `MOST_SMALL_ROWS` says where ours are taken.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.availability import runs_triton

__all__ = [
    "gated_product",
    "gated_product_triton",
    "silu_multiply",
    "silu_multiply_reference",
    "silu_multiply_triton",
    "small_product_triton",
]

MOST_SMALL_ROWS = 0
"""Rows up to which a gated product is ours and not the library's: none, as long as no measurement speaks for it."""

BLOCK_CHANNELS = 1024
"""Channels of one program of `silu_multiply_triton`."""


def silu_multiply(gate_up: Tensor) -> Tensor:
    """`silu_multiply_triton` on a GPU with Triton, `silu_multiply_reference` elsewhere."""
    return silu_multiply_triton(gate_up) if runs_triton(gate_up) else silu_multiply_reference(gate_up)


def silu_multiply_reference(gate_up: Tensor) -> Tensor:
    """Return `silu(gate) * up`, `[rows, width]`, of `gate_up` `[rows, 2 * width]`; the gate is rounded first."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def silu_multiply_triton(gate_up: Tensor) -> Tensor:
    """What `silu_multiply_reference` computes, in one launch; ValueError unless `gate_up` is contiguous and even."""
    from foveate.kernels.gated_kernel import silu_multiply_kernel

    if gate_up.dim() != 2 or gate_up.shape[1] % 2 or not gate_up.is_contiguous():
        raise ValueError(
            f"gate_up must be [rows, 2 * width], contiguous: got {list(gate_up.shape)}, strides {gate_up.stride()}."
        )
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    if rows:
        with torch.cuda.device_of(gate_up):
            silu_multiply_kernel[rows, -(-width // BLOCK_CHANNELS)](
                gate_up, out, width=width, block=BLOCK_CHANNELS, num_warps=4
            )
    return out


def gated_product(rows: Tensor, weight: Tensor) -> Tensor:
    """Return `silu(rows @ gate.T) * (rows @ up.T)`, `[rows, width]`, of `rows` `[rows, inputs]`.

    `weight` is `[2 * width, inputs]`: gate, then up.
    """
    if runs_triton(rows, weight) and rows.shape[0] <= MOST_SMALL_ROWS:
        return gated_product_triton(rows, weight)
    return silu_multiply(F.linear(rows, weight))


def gated_product_triton(rows: Tensor, weight: Tensor, *, block_outputs: int = 4, block: int = 512) -> Tensor:
    """What `gated_product` computes for few rows `[rows, inputs]`, in one launch; ValueError for other layouts.

    Each program reads `block_outputs` rows of gate and of up, `block` columns at a time, powers of two both.
    """
    from foveate.kernels.gated_kernel import gated_product_kernel

    _check(rows, weight)
    if weight.shape[0] % 2:
        raise ValueError(f"weight must be gate, then up, of one size: got {weight.shape[0]} rows.")
    return _launch(gated_product_kernel, rows, weight, weight.shape[0] // 2, block_outputs, block)


def small_product_triton(rows: Tensor, weight: Tensor, *, block_outputs: int = 4, block: int = 512) -> Tensor:
    """Return `rows @ weight.T` for few rows `[rows, inputs]`, weight `[outputs, inputs]`; the twin is `F.linear`.

    Raises ValueError for other layouts.
    """
    from foveate.kernels.gated_kernel import small_product_kernel

    _check(rows, weight)
    return _launch(small_product_kernel, rows, weight, weight.shape[0], block_outputs, block)


def _launch(kernel: Any, rows: Tensor, weight: Tensor, outputs: int, block_outputs: int, block: int) -> Tensor:
    """Run a product's kernel; returns `[rows, outputs]`."""
    out = rows.new_empty(rows.shape[0], outputs)
    if rows.shape[0]:
        with torch.cuda.device_of(rows):
            kernel[rows.shape[0], -(-outputs // block_outputs)](
                rows,
                weight,
                out,
                inputs=rows.shape[1],
                outputs=outputs,
                block_outputs=block_outputs,
                block=block,
                num_warps=4,
            )
    return out


def _check(rows: Tensor, weight: Tensor) -> None:
    if rows.dim() != 2 or weight.dim() != 2 or rows.shape[1] != weight.shape[1]:
        raise ValueError(
            f"rows [rows, inputs] and weight [outputs, inputs] must have as many inputs: got {list(rows.shape)} and "
            f"{list(weight.shape)}."
        )
    if not rows.is_contiguous() or not weight.is_contiguous():
        raise ValueError(f"rows and weight must be contiguous: got strides {rows.stride()} and {weight.stride()}.")

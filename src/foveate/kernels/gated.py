"""The gated FFN of the language model: `silu(gate) * up`, and matrix products of very few rows.

With few rows a product is bound by reading its weight. The Triton forms of such products read it with all
multiprocessors at once, and put the gate into the same launch. On an H200 they take less time than the library's for a
single row, and as much or more for two: `benchmarks/kernel_times.py` measures both.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.availability import launch_options, runs_triton

__all__ = [
    "ProductForm",
    "gated_product",
    "gated_product_triton",
    "silu_multiply",
    "silu_multiply_reference",
    "silu_multiply_triton",
    "small_product",
    "small_product_triton",
]

MOST_SMALL_ROWS = 1
"""Rows up to which a product is ours and not the library's."""

SMALL_TYPES = (torch.bfloat16, torch.float16)
"""Types of the products that are ours: float32 has the library's sums everywhere."""

BLOCK_CHANNELS = 1024
"""Channels of one program of `silu_multiply_triton`."""


@dataclass(frozen=True)
class ProductForm:
    """How the programs of a product of few rows share its weight. The numbers are powers of two."""

    outputs: int = 2
    """Rows of the weight that one program reads; of gate and of up, where it has both."""
    columns: int = 1024
    """Columns of them that it reads in one step."""
    warps: int = 4
    """Warps of a program. A single one keeps its sums to itself, and needs no shared memory."""
    unroll: int = 1
    """Steps of the loop in one, so that the loads of all of them are in flight."""
    eviction: str = ""
    """What the cache does with weights: "evict_first" leaves it to rows, keys and values."""
    overlaps: bool | None = False
    """Whether the launch begins to read weights while the one before it on the stream still runs, as
    `foveate.kernels.availability` says; None: where the device can."""


MOST_OVERLAPPED = 32_768
"""Outputs beyond which a launch is so large that its programs are in the way of the one before."""


def measured_form(outputs: int) -> ProductForm:
    """The form that was the fastest, or within a few percent of it, in `benchmarks/kernel_times.py`."""
    return ProductForm(eviction="evict_first", overlaps=None if outputs <= MOST_OVERLAPPED else False)


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
                gate_up, out, width=width, block=BLOCK_CHANNELS, num_warps=4, **launch_options(gate_up.device, rows)
            )
    return out


def small_product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `rows @ weight.T + bias`, `[rows, outputs]`, of `rows` `[rows, inputs]` and `weight` `[outputs, inputs]`.

    `small_product_triton` where it is the faster one, on a GPU with Triton and without a bias, `F.linear` elsewhere.
    """
    if bias is None and _is_ours(rows, weight):
        return small_product_triton(rows, weight)
    return F.linear(rows, weight, bias)


def gated_product(rows: Tensor, weight: Tensor) -> Tensor:
    """Return `silu(rows @ gate.T) * (rows @ up.T)`, `[rows, width]`, of `rows` `[rows, inputs]`.

    `weight` is `[2 * width, inputs]`: gate, then up.
    """
    if _is_ours(rows, weight):
        return gated_product_triton(rows, weight)
    return silu_multiply(F.linear(rows, weight))


def gated_product_triton(rows: Tensor, weight: Tensor, *, form: ProductForm | None = None) -> Tensor:
    """What `gated_product` computes for few rows `[rows, inputs]`, in one launch; ValueError for other layouts."""
    from foveate.kernels.gated_kernel import gated_product_kernel

    _check(rows, weight)
    if weight.shape[0] % 2:
        raise ValueError(f"weight must be gate, then up, of one size: got {weight.shape[0]} rows.")
    return _launch(gated_product_kernel, rows, weight, weight.shape[0] // 2, form)


def small_product_triton(rows: Tensor, weight: Tensor, *, form: ProductForm | None = None) -> Tensor:
    """Return `rows @ weight.T` for few rows `[rows, inputs]`, weight `[outputs, inputs]`; the twin is `F.linear`.

    Raises ValueError for other layouts.
    """
    from foveate.kernels.gated_kernel import small_product_kernel

    _check(rows, weight)
    return _launch(small_product_kernel, rows, weight, weight.shape[0], form)


def _is_ours(rows: Tensor, weight: Tensor) -> bool:
    """Whether a product goes to a kernel for few rows."""
    is_small = rows.dim() == 2 and rows.shape[0] <= MOST_SMALL_ROWS
    if not is_small or rows.dtype not in SMALL_TYPES or rows.dtype != weight.dtype:
        return False
    return rows.is_contiguous() and weight.is_contiguous() and runs_triton(rows, weight)


def _launch(kernel: Any, rows: Tensor, weight: Tensor, outputs: int, form: ProductForm | None) -> Tensor:
    """Run a product's kernel; returns `[rows, outputs]`."""
    form = form or measured_form(outputs)
    out = rows.new_empty(rows.shape[0], outputs)
    if rows.shape[0]:
        with torch.cuda.device_of(rows):
            # One dimension: an axis of the grid other than the first ends at 65,535, and a vocabulary does not.
            kernel[rows.shape[0] * -(-outputs // form.outputs),](
                rows,
                weight,
                out,
                rows.shape[0],
                inputs=rows.shape[1],
                outputs=outputs,
                block_outputs=form.outputs,
                block=form.columns,
                unroll=form.unroll,
                eviction=form.eviction,
                num_warps=form.warps,
                **launch_options(rows.device, len(rows), form.overlaps),
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

"""The Triton programs behind `foveate.kernels.gated`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl

__all__ = ["gated_product_kernel", "silu_multiply_kernel", "small_product_kernel"]


@triton.jit
def _silu(gate):
    """`gate * sigmoid(gate)`, by an exponential that cannot overflow."""
    small = tl.exp(-tl.abs(gate))
    return gate * tl.where(gate >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def silu_multiply_kernel(gate_up, out, width: tl.constexpr, block: tl.constexpr) -> None:
    """`block` channels of one row. The gate is rounded before the product, as the twin does."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    mask = channel < width
    gate = tl.load(gate_up + row * 2 * width + channel, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + channel, mask=mask, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    opened = _silu(gate).to(dtype).to(tl.float32)
    tl.store(out + row * width + channel, (opened * up).to(dtype), mask=mask)


@triton.jit
def _products(
    rows, weight, output, inputs: tl.constexpr, outputs: tl.constexpr, block_outputs: tl.constexpr, block: tl.constexpr
):
    """`[block_outputs]` float32: one row times the rows `output` of `weight`, read once, `block` columns a step."""
    total = tl.zeros([block_outputs, block], tl.float32)
    source = weight + output.to(tl.int64)[:, None] * inputs
    for start in range(0, inputs, block):
        column = start + tl.arange(0, block)
        mask = column < inputs
        values = tl.load(rows + column, mask=mask, other=0.0).to(tl.float32)
        weights = tl.load(source + column[None, :], mask=(output < outputs)[:, None] & mask[None, :], other=0.0)
        total += weights.to(tl.float32) * values[None, :]
    return tl.sum(total, 1)


@triton.jit
def small_product_kernel(
    rows,
    weight,
    out,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    block_outputs: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """`block_outputs` outputs of one row. Programs of one block follow each other, and find its weight in the cache."""
    row = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    result = _products(rows + row * inputs, weight, output, inputs, outputs, block_outputs, block)
    tl.store(out + row * outputs + output, result.to(out.dtype.element_ty), mask=output < outputs)


@triton.jit
def gated_product_kernel(
    rows,
    weight,
    out,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    block_outputs: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """`block_outputs` outputs of one row: `silu` of the gate's product times the product below, rounded as the twin."""
    row = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    dtype = out.dtype.element_ty
    gate = _products(rows + row * inputs, weight, output, inputs, outputs, block_outputs, block)
    below = weight + outputs * inputs
    up = _products(rows + row * inputs, below, output, inputs, outputs, block_outputs, block)
    gate, up = gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32)
    opened = _silu(gate).to(dtype).to(tl.float32)
    tl.store(out + row * outputs + output, (opened * up).to(dtype), mask=output < outputs)

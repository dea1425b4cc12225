"""The Triton programs behind `foveate.kernels.gated`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["gated_product_kernel", "silu_multiply_kernel", "small_product_kernel"]


@triton.jit
def _silu(gate):
    """`gate * sigmoid(gate)`, by an exponential that cannot overflow."""
    small = tl.exp(-tl.abs(gate))
    return gate * tl.where(gate >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def silu_multiply_kernel(gate_up, out, width: tl.constexpr, block: tl.constexpr, overlaps: tl.constexpr) -> None:
    """`block` channels of one row. The gate is rounded before the product, as the twin does."""
    if overlaps:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    mask = channel < width
    if overlaps:
        gdc_wait()
    gate = tl.load(gate_up + row * 2 * width + channel, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + channel, mask=mask, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    opened = _silu(gate).to(dtype).to(tl.float32)
    tl.store(out + row * width + channel, (opened * up).to(dtype), mask=mask)


@triton.jit
def _weights(weight, output, column, inputs: tl.constexpr, outputs: tl.constexpr, is_whole: tl.constexpr, eviction):
    """`[block_outputs, block]`: some columns of the rows `output`; zeros outside the weight."""
    source = weight + output.to(tl.int64)[:, None] * inputs + column[None, :]
    if is_whole:
        return tl.load(source, eviction_policy=eviction)
    mask = (output < outputs)[:, None] & (column < inputs)[None, :]
    return tl.load(source, mask=mask, other=0.0, eviction_policy=eviction)


@triton.jit
def _times(weights, row, column, inputs: tl.constexpr):
    """`[block_outputs, block]` float32: weights times the same columns of the row."""
    values = tl.load(row + column, mask=column < inputs, other=0.0).to(tl.float32)
    return weights.to(tl.float32) * values[None, :]


@triton.jit
def small_product_kernel(
    rows,
    weight,
    out,
    num_rows,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    block_outputs: tl.constexpr,
    block: tl.constexpr,
    unroll: tl.constexpr,
    eviction: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block_outputs` outputs of one row. Programs of one block follow each other, and find its weight in the cache.

    The first weights are on their way before the row is asked for. If the launch overlaps the one before, which may be
    the one that writes the row, that is all there is to do until the other has ended.
    """
    if overlaps:
        gdc_launch_dependents()
    row = (tl.program_id(0) % num_rows).to(tl.int64)
    output = tl.program_id(0) // num_rows * block_outputs + tl.arange(0, block_outputs)
    is_whole: tl.constexpr = inputs % block == 0 and outputs % block_outputs == 0
    column = tl.arange(0, block)
    weights = _weights(weight, output, column, inputs, outputs, is_whole, eviction)
    if overlaps:
        gdc_wait()
    total = _times(weights, rows + row * inputs, column, inputs)
    for start in tl.range(block, inputs, block, loop_unroll_factor=unroll):
        column = start + tl.arange(0, block)
        weights = _weights(weight, output, column, inputs, outputs, is_whole, eviction)
        total += _times(weights, rows + row * inputs, column, inputs)
    result = tl.sum(total, 1)
    tl.store(out + row * outputs + output, result.to(out.dtype.element_ty), mask=output < outputs)


@triton.jit
def gated_product_kernel(
    rows,
    weight,
    out,
    num_rows,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    block_outputs: tl.constexpr,
    block: tl.constexpr,
    unroll: tl.constexpr,
    eviction: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block_outputs` outputs of one row: `silu` of the gate's product times the product below, rounded as the twin.

    Both products run side by side, otherwise as in `small_product_kernel`.
    """
    if overlaps:
        gdc_launch_dependents()
    row = (tl.program_id(0) % num_rows).to(tl.int64)
    output = tl.program_id(0) // num_rows * block_outputs + tl.arange(0, block_outputs)
    is_whole: tl.constexpr = inputs % block == 0 and outputs % block_outputs == 0
    below = weight + outputs * inputs
    column = tl.arange(0, block)
    gate_weights = _weights(weight, output, column, inputs, outputs, is_whole, eviction)
    up_weights = _weights(below, output, column, inputs, outputs, is_whole, eviction)
    if overlaps:
        gdc_wait()
    gate = _times(gate_weights, rows + row * inputs, column, inputs)
    up = _times(up_weights, rows + row * inputs, column, inputs)
    for start in tl.range(block, inputs, block, loop_unroll_factor=unroll):
        column = start + tl.arange(0, block)
        gate_weights = _weights(weight, output, column, inputs, outputs, is_whole, eviction)
        up_weights = _weights(below, output, column, inputs, outputs, is_whole, eviction)
        gate += _times(gate_weights, rows + row * inputs, column, inputs)
        up += _times(up_weights, rows + row * inputs, column, inputs)
    dtype = out.dtype.element_ty
    opened = _silu(tl.sum(gate, 1).to(dtype).to(tl.float32)).to(dtype).to(tl.float32)
    result = opened * tl.sum(up, 1).to(dtype).to(tl.float32)
    tl.store(out + row * outputs + output, result.to(dtype), mask=output < outputs)

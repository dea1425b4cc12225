"""The Triton programs that `products.py` compares with cuBLAS."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["described_product_kernel", "product_kernel"]


@triton.jit
def _place(num_rows, block_rows: tl.constexpr, block_outputs: tl.constexpr):
    """First row and first output of a program; programs of one block of weights follow each other."""
    blocks = tl.cdiv(num_rows, block_rows)
    return tl.program_id(0) % blocks * block_rows, tl.program_id(0) // blocks * block_outputs


@triton.jit
def _prefetch(weight, output, inputs) -> None:
    """Has the weights of some outputs brought to the cache, 128 bytes at a time."""
    for column in range(0, inputs, 64):
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            "=r,l",
            [(weight + output * inputs + column).to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _finish(sums, bias, out, row, output, num_rows, outputs, kind: tl.constexpr) -> None:
    """What follows the product, in float32, and the store."""
    target = out + row[:, None] * outputs + output[None, :]
    mask = (row < num_rows)[:, None] & (output < outputs)[None, :]
    if kind == "add":
        sums += tl.load(target, mask=mask, other=0.0).to(tl.float32)
    else:
        sums += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    if kind == "gelu":
        sums = sums / (1 + tl.exp(-1.5957691216057308 * (sums + 0.044715 * sums * sums * sums)))
    tl.store(target, sums.to(out.dtype.element_ty), mask=mask)


@triton.jit
def product_kernel(
    rows,
    weight,
    bias,
    out,
    num_rows,
    outputs,
    inputs,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
    block_inputs: tl.constexpr,
    kind: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """`rows @ weight.T`, loaded through pointers."""
    gdc_launch_dependents()
    first_row, first_output = _place(num_rows, block_rows, block_outputs)
    row, output = first_row + tl.arange(0, block_rows), first_output + tl.arange(0, block_outputs)
    _prefetch(weight, output, inputs)
    gdc_wait()
    column = tl.arange(0, block_inputs)
    sums = tl.zeros((block_rows, block_outputs), tl.float32)
    for start in tl.range(0, inputs, block_inputs, num_stages=stages):
        is_there = start + column < inputs
        given = tl.load(
            rows + row[:, None] * inputs + start + column[None, :],
            mask=(row < num_rows)[:, None] & is_there[None, :],
            other=0.0,
        )
        weights = tl.load(
            weight + output[None, :] * inputs + start + column[:, None],
            mask=(output < outputs)[None, :] & is_there[:, None],
            other=0.0,
        )
        sums = tl.dot(given, weights, sums)
    _finish(sums, bias, out, row, output, num_rows, outputs, kind)


@triton.jit
def described_product_kernel(
    row_blocks,
    weight_blocks,
    weight,
    bias,
    out,
    num_rows,
    outputs,
    inputs,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
    block_inputs: tl.constexpr,
    kind: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """The same through tensor descriptors, which a unit of their own copies."""
    gdc_launch_dependents()
    first_row, first_output = _place(num_rows, block_rows, block_outputs)
    row, output = first_row + tl.arange(0, block_rows), first_output + tl.arange(0, block_outputs)
    _prefetch(weight, output, inputs)
    gdc_wait()
    sums = tl.zeros((block_rows, block_outputs), tl.float32)
    for start in tl.range(0, inputs, block_inputs, num_stages=stages):
        sums = tl.dot(row_blocks.load([first_row, start]), weight_blocks.load([first_output, start]).T, sums)
    _finish(sums, bias, out, row, output, num_rows, outputs, kind)

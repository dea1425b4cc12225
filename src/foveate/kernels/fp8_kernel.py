"""The Triton programs behind `foveate.kernels.fp8`: each ends with a row in float8 and its scale."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl

__all__ = ["gelu_fp8_kernel", "layer_norm_fp8_kernel", "quantise_kernel"]


@triton.jit
def _store_quantised(values, out, scales, row, channel, mask, width: tl.constexpr, smallest, largest):
    """Stores a row `values` (float32, 0 where masked) in float8, and the scale by which it was divided."""
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(values), 0), smallest), largest)
    tl.store(scales + row, scale)
    tl.store(out + row * width + channel, tl.div_rn(values, scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def quantise_kernel(rows, out, scales, smallest, largest, width: tl.constexpr, block: tl.constexpr) -> None:
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, block)
    mask = channel < width
    values = tl.load(rows + row * width + channel, mask=mask, other=0.0).to(tl.float32)
    _store_quantised(values, out, scales, row, channel, mask, width, smallest, largest)


@triton.jit
def gelu_fp8_kernel(rows, out, scales, smallest, largest, width: tl.constexpr, block: tl.constexpr) -> None:
    """One row: its GELU in the tanh form, in float32."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, block)
    mask = channel < width
    values = tl.load(rows + row * width + channel, mask=mask, other=0.0).to(tl.float32)
    # 0.5 * (1 + tanh(x)) is sigmoid(2 x): here 2 * sqrt(2 / pi) times the argument, by an exponential that cannot
    # overflow.
    inner = 1.5957691216057308 * (values + 0.044715 * values * values * values)
    small = tl.exp(-tl.abs(inner))
    values = values * tl.where(inner >= 0, 1.0, small) / (1.0 + small)
    _store_quantised(values, out, scales, row, channel, mask, width, smallest, largest)


@triton.jit
def layer_norm_fp8_kernel(
    hidden,
    branch,
    offset,
    weight,
    bias,
    out,
    scales,
    eps,
    smallest,
    largest,
    width: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One row: adds the branch to the hidden row in place, then norms the sum and what it lacks, as
    `layer_norm_kernel` does."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, block)
    mask = channel < width
    values = tl.load(hidden + row * width + channel, mask=mask, other=0.0).to(tl.float32)
    if branch is not None:
        values += tl.load(branch + row * width + channel, mask=mask, other=0.0).to(tl.float32)
        rounded = values.to(hidden.dtype.element_ty)
        tl.store(hidden + row * width + channel, rounded, mask=mask)
        values = rounded.to(tl.float32)
    values += tl.load(offset + channel, mask=mask, other=0.0)
    mean = tl.sum(values, 0) / width
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / width
    scaled = centred * tl.rsqrt(variance + eps)
    scaled = scaled * tl.load(weight + channel, mask=mask, other=0.0).to(tl.float32)
    scaled = scaled + tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
    _store_quantised(scaled, out, scales, row, channel, mask, width, smallest, largest)

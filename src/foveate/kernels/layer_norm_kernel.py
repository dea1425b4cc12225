"""The Triton program behind `foveate.kernels.layer_norm`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl

__all__ = ["layer_norm_kernel"]


@triton.jit
def layer_norm_kernel(
    hidden,
    offset,
    weight,
    bias,
    out,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Normalise one row of `width` channels, read once and held in registers; `block` is a power of two."""
    # Rows of a large batch times their width pass 2**31.
    first = tl.program_id(0).to(tl.int64) * width
    channel = tl.arange(0, block)
    mask = channel < width
    values = tl.load(hidden + first + channel, mask=mask, other=0.0).to(tl.float32)
    if offset is not None:
        values += tl.load(offset + channel, mask=mask, other=0.0)
    mean = tl.sum(values, 0) / width
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / width
    scaled = centred * tl.rsqrt(variance + eps)
    scaled = scaled * tl.load(weight + channel, mask=mask, other=0.0).to(tl.float32)
    scaled = scaled + tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + first + channel, scaled.to(out.dtype.element_ty), mask=mask)

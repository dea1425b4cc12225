"""The Triton program behind `foveate.kernels.norm.add_rms_norm`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["add_rms_norm_kernel"]


@triton.jit
def add_rms_norm_kernel(
    hidden,
    branch,
    weight,
    total,
    out,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Add and normalise one row of `width` channels; `block` is a power of two. Rounds where the twin rounds.

    The weights are on their way before the rows are there.
    """
    if overlaps:
        gdc_launch_dependents()
    first = tl.program_id(0).to(tl.int64) * width
    channel = tl.arange(0, block)
    mask = channel < width
    dtype = out.dtype.element_ty
    weights = tl.load(weight + channel, mask=mask, other=0.0)
    if overlaps:
        gdc_wait()
    values = tl.load(hidden + first + channel, mask=mask, other=0.0).to(tl.float32)
    if branch is not None:
        values += tl.load(branch + first + channel, mask=mask, other=0.0).to(tl.float32)
        rounded = values.to(dtype)
        tl.store(total + first + channel, rounded, mask=mask)
        values = rounded.to(tl.float32)
    scaled = (values * tl.rsqrt(tl.sum(values * values, 0) / width + eps)).to(dtype)
    tl.store(out + first + channel, (weights.to(tl.float32) * scaled.to(tl.float32)).to(dtype), mask=mask)

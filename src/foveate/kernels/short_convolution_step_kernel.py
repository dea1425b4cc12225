"""The Triton program behind `foveate.kernels.short_convolution_step`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["short_convolution_step_kernel"]


@triton.jit
def short_convolution_step_kernel(
    gates,
    states,
    slots,
    weight,
    bias,
    out,
    width: tl.constexpr,
    taps: tl.constexpr,
    block: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block` channels of one sequence: reads their state, convolves, and moves the state on by one row.

    A channel's state is read and written by one thread, in this order. The newest tap's weights are on their way before
    the gates are there, and with them the other taps', which lie between.
    """
    if overlaps:
        gdc_launch_dependents()
    sequence = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    mask = channel < width
    dtype = out.dtype.element_ty
    newest = tl.load(weight + channel * taps + taps - 1, mask=mask, other=0.0).to(tl.float32)
    if overlaps:
        gdc_wait()
    source = gates + sequence * 3 * width + channel
    before = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    after = tl.load(source + width, mask=mask, other=0.0).to(tl.float32)
    content = tl.load(source + 2 * width, mask=mask, other=0.0).to(tl.float32)
    new = (before * content).to(dtype)
    state = states + tl.load(slots + sequence).to(tl.int64) * (taps - 1) * width + channel
    total = tl.zeros([block], tl.float32)
    for tap in tl.static_range(taps - 1):
        old = tl.load(state + tap * width, mask=mask, other=0.0)
        total += old.to(tl.float32) * tl.load(weight + channel * taps + tap, mask=mask, other=0.0).to(tl.float32)
        if tap > 0:
            tl.store(state + (tap - 1) * width, old, mask=mask)
    if taps > 1:
        tl.store(state + (taps - 2) * width, new, mask=mask)
    total += new.to(tl.float32) * newest
    if bias is not None:
        total += tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + sequence * width + channel, (after * total.to(dtype).to(tl.float32)).to(dtype), mask=mask)

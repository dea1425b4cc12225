"""The Triton programs behind `foveate.kernels.packed_convolution`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from foveate.kernels.packed_rows_kernel import own_rows

__all__ = ["next_states_kernel", "packed_convolution_kernel"]


@triton.jit
def _gated(source, width: tl.constexpr, mask):
    """`before * content` of the rows at `source`, rounded to their type; 0, and not read, where masked."""
    before = tl.load(source, mask=mask, other=0.0)
    content = tl.load(source + 2 * width, mask=mask, other=0.0)
    return (before.to(tl.float32) * content.to(tl.float32)).to(before.dtype)


@triton.jit
def _tap_input(source, state, row, first_row, mask, back: tl.constexpr, kept: tl.constexpr, width: tl.constexpr):
    """What lies `back` rows before each row: in `gates`, or in the state, whose last row lies before row 0."""
    given = _gated(source - back * 3 * width, width, mask & (row >= back))
    if back > 0 and first_row < back:  # Only the first program of a sequence looks back so far.
        old = tl.load(state + (row + kept - back) * width, mask=mask & (row < back), other=0.0)
        given = tl.where(row < back, old, given)
    return given


@triton.jit(do_not_specialize=["rows", "sequences"])
def packed_convolution_kernel(
    gates,
    states,
    slots,
    bounds,
    weight,
    bias,
    out,
    rows,
    sequences,
    width: tl.constexpr,
    taps: tl.constexpr,
    lanes: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block_channels` channels of `block_rows` rows of one sequence, or zeros where they are padding.

    The inputs of a tap are rows of `gates`, or of the sequence's state where they are older than its first new row.
    """
    if overlaps:
        gdc_launch_dependents()
    if overlaps:
        gdc_wait()
    kept: tl.constexpr = taps - 1
    sequence, begin, end, first = own_rows(tl.program_id(0), bounds, rows, sequences, lanes, block_rows)
    if first >= end:
        return
    dtype = out.dtype.element_ty
    row = first - begin + tl.arange(0, block_rows)[:, None]  # of the sequence
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)[None, :]
    is_own = (row < end - begin) & (channel < width)
    out += begin.to(tl.int64) * width + row.to(tl.int64) * width + channel
    total = tl.zeros([block_rows, block_channels], tl.float32)
    if sequence == sequences:
        tl.store(out, total.to(dtype), mask=is_own)
        return

    source = gates + (begin + row).to(tl.int64) * (3 * width) + channel
    state = states + tl.load(slots + sequence).to(tl.int64) * kept * width + channel
    for tap in tl.static_range(taps):
        given = _tap_input(source, state, row, first - begin, is_own, kept - tap, kept, width)
        factor = tl.load(weight + channel * taps + tap, mask=channel < width, other=0.0)
        total += given.to(tl.float32) * factor.to(tl.float32)
    if bias is not None:
        total += tl.load(bias + channel, mask=channel < width, other=0.0).to(tl.float32)
    after = tl.load(source + width, mask=is_own, other=0.0)
    tl.store(out, (after.to(tl.float32) * total.to(dtype).to(tl.float32)).to(dtype), mask=is_own)


@triton.jit
def next_states_kernel(
    gates,
    states,
    slots,
    bounds,
    width: tl.constexpr,
    taps: tl.constexpr,
    block_channels: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block_channels` channels of the state of one sequence: the last rows of "state, then new rows".

    A channel's state is read and written by one thread, oldest row first, and with one new row or more what a row
    takes from the state is newer than itself: no row is read that was written before.
    """
    if overlaps:
        gdc_launch_dependents()
    if overlaps:
        gdc_wait()
    kept: tl.constexpr = taps - 1
    sequence = tl.program_id(0)
    begin, end = tl.load(bounds + sequence), tl.load(bounds + sequence + 1)
    new = end - begin
    if new <= 0:
        return
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    mask = channel < width
    state = states + tl.load(slots + sequence).to(tl.int64) * kept * width + channel
    source = gates + end.to(tl.int64) * (3 * width) + channel
    for row in tl.static_range(kept):
        if row + new < kept:
            given = tl.load(state + (row + new) * width, mask=mask, other=0.0)
        else:
            given = _gated(source - (kept - row) * 3 * width, width, mask)
        tl.store(state + row * width, given, mask=mask)

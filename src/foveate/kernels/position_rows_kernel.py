"""The Triton program behind `foveate.kernels.position_rows`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["position_rows_kernel"]


@triton.jit
def _own_slots(bounds, row, slots, steps: tl.constexpr):
    """The tile slot of each row, by bisection; `slots` where a row lies behind the last bound.

    The slot is the number of bounds[1:] that are not above the row. `steps` halvings tell `slots + 1` numbers apart.
    """
    low = tl.zeros_like(row)
    high = low + slots
    for _ in tl.static_range(steps):
        middle = (low + high) // 2
        is_open = low < high
        end = tl.load(bounds + 1 + middle, mask=is_open, other=0)
        is_behind = is_open & (end <= row)
        low = tl.where(is_behind, middle + 1, low)
        high = tl.where(is_behind, high, middle)
    return low


@triton.jit
def _weight(source, centre, reach):
    """The triangle's weight of a table cell, before the weights of a patch are made to sum to 1."""
    return tl.maximum(1.0 - tl.div_rn(tl.abs(source.to(tl.float32) - centre), reach), 0.0)


@triton.jit
def _cells(index, size, is_real, side: tl.constexpr):
    """Along one axis, for each patch: its centre in the table, the half-width of its triangle, the first cell with a
    weight, how many there are, and the sum of the weights. Padding has no cells."""
    scale = tl.div_rn(tl.full(index.shape, side, tl.float32), size.to(tl.float32))
    centre = (index.to(tl.float32) + 0.5) * scale - 0.5
    reach = tl.maximum(scale, 1.0)
    first = tl.maximum(tl.floor(centre - reach).to(tl.int32) + 1, 0)
    end = tl.minimum(tl.ceil(centre + reach).to(tl.int32), side)
    count = tl.where(is_real, end - first, 0)
    total = tl.zeros_like(centre)
    for step in range(tl.max(count, 0)):
        total += tl.where(step < count, _weight(first + step, centre, reach), 0.0)
    return centre, reach, first, count, tl.where(is_real, total, 1.0)


@triton.jit(do_not_specialize=["rows", "slots"])
def position_rows_kernel(
    table,
    tile_shapes,
    bounds,
    out,
    rows,
    slots,
    side: tl.constexpr,
    width: tl.constexpr,
    steps: tl.constexpr,
    block_rows: tl.constexpr,
    block: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """`block` channels of `block_rows` position rows, of whatever tiles they are; zeros where they are padding."""
    if overlaps:
        gdc_launch_dependents()
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    channel = (tl.program_id(1) * block + tl.arange(0, block))[None, :]
    if overlaps:
        gdc_wait()
    slot = _own_slots(bounds, row, slots, steps)
    is_real = (slot < slots) & (row < rows)
    tile_rows = tl.load(tile_shapes + 2 * slot, mask=is_real, other=1).to(tl.int32)
    tile_columns = tl.load(tile_shapes + 2 * slot + 1, mask=is_real, other=1).to(tl.int32)
    index = row - tl.load(bounds + slot, mask=is_real, other=0)
    down_centre, down_reach, top, tall, down_total = _cells(index // tile_columns, tile_rows, is_real, side)
    right_centre, right_reach, left, wide, right_total = _cells(index % tile_columns, tile_columns, is_real, side)

    most_tall = tl.max(tall, 0)
    most_wide = tl.max(wide, 0)
    total = tl.zeros([block_rows, block], tl.float32)
    if (most_tall <= 2) & (most_wide <= 2):
        # Nearly every tile: no loop, so that the four loads are in flight together.
        for down in tl.static_range(2):
            for right in tl.static_range(2):
                down_weight = tl.div_rn(_weight(top + down, down_centre, down_reach), down_total)
                right_weight = tl.div_rn(_weight(left + right, right_centre, right_reach), right_total)
                cell = (top + down) * side + left + right
                mask = ((down < tall) & (right < wide))[:, None] & (channel < width)
                values = tl.load(table + cell[:, None] * width + channel, mask=mask, other=0.0)
                total += (down_weight * right_weight)[:, None] * values.to(tl.float32)
    else:
        for down in range(most_tall):
            down_weight = tl.div_rn(_weight(top + down, down_centre, down_reach), down_total)
            for right in range(most_wide):
                right_weight = tl.div_rn(_weight(left + right, right_centre, right_reach), right_total)
                cell = (top + down) * side + left + right
                mask = ((down < tall) & (right < wide))[:, None] & (channel < width)
                values = tl.load(table + cell[:, None] * width + channel, mask=mask, other=0.0)
                total += (down_weight * right_weight)[:, None] * values.to(tl.float32)
    # Rows of a large batch times the width pass 2**31.
    tl.store(
        out + row[:, None].to(tl.int64) * width + channel,
        total.to(out.dtype.element_ty),
        mask=(row < rows)[:, None] & (channel < width),
    )

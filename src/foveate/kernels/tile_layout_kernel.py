"""The Triton program behind `foveate.kernels.tile_layout`."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["tile_layout_kernel"]


@triton.jit(do_not_specialize=["slots", "tokens"])
def tile_layout_kernel(
    tile_shapes,
    bounds,
    gather_index,
    is_padding,
    slots,
    tokens,
    factor: tl.constexpr,
    cells: tl.constexpr,
    lanes: tl.constexpr,
    block_tokens: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Lays out `block_tokens` image tokens; the first program writes the bounds too.

    Each program sums up the tiles by itself, `lanes` slots at a time: the tiles that end at or before a token are those
    before its own, so their patches, their tokens and their number say where it lies. `cells` is a power of two,
    `factor**2` or above.
    """
    if overlaps:
        gdc_launch_dependents()
    program = tl.program_id(0)
    if overlaps:
        gdc_wait()
    token = program * block_tokens + tl.arange(0, block_tokens)
    slot = tl.zeros([block_tokens], tl.int32)
    first_patch = tl.zeros([block_tokens], tl.int32)
    first_token = tl.zeros([block_tokens], tl.int32)
    all_patches = 0
    all_tokens = 0
    for start in range(0, slots, lanes):
        lane = start + tl.arange(0, lanes)
        rows = tl.load(tile_shapes + 2 * lane, mask=lane < slots, other=0).to(tl.int32)
        columns = tl.load(tile_shapes + 2 * lane + 1, mask=lane < slots, other=0).to(tl.int32)
        patches = rows * columns
        own_tokens = (rows // factor) * (columns // factor)
        ends = all_tokens + tl.cumsum(own_tokens, 0)
        is_before = (ends[None, :] <= token[:, None]).to(tl.int32)
        slot += tl.sum(is_before, 1)
        first_patch += tl.sum(is_before * patches[None, :], 1)
        first_token += tl.sum(is_before * own_tokens[None, :], 1)
        if program == 0:
            tl.store(bounds + 1 + lane, all_patches + tl.cumsum(patches, 0), mask=lane < slots)
        all_patches += tl.sum(patches, 0)
        all_tokens += tl.sum(own_tokens, 0)
    if program == 0:
        tl.store(bounds, 0)

    is_real = token < all_tokens
    columns = tl.load(tile_shapes + 2 * slot + 1, mask=is_real, other=factor).to(tl.int32)
    index = token - first_token
    blocks_per_row = tl.maximum(columns // factor, 1)
    top = index // blocks_per_row * factor
    left = index % blocks_per_row * factor
    cell = tl.arange(0, cells)[None, :]
    patch = first_patch[:, None] + (top[:, None] + cell // factor) * columns[:, None] + left[:, None] + cell % factor
    tl.store(
        gather_index + token[:, None] * (factor * factor) + cell,
        tl.where(is_real[:, None], patch, 0).to(tl.int64),
        mask=(token < tokens)[:, None] & (cell < factor * factor),
    )
    tl.store(is_padding + token, (token >= all_tokens).to(tl.uint8), mask=token < tokens)

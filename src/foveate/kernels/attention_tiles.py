"""How the attention kernel cuts its work: block sizes, and the channels of a head into powers of two."""

from dataclasses import dataclass

import torch

from foveate.errors import ConfigurationError

__all__ = ["AttentionTiles", "HeadSplit", "attention_tiles", "split_head"]

LARGEST_HEAD = 128
"""Channels of the widest head the kernel takes: beyond it the accumulators leave the registers."""

SMALLEST_BLOCK = 16
"""Rows, columns and channels of the smallest matrix product a tensor core computes."""

WIDE_HEAD = 80
"""Channels up to which the accumulators leave room for three small, or two large, programs on a multiprocessor."""

MULTIPROCESSORS = 132
"""Of an H100 or H200, where the choice was measured. Elsewhere it is as right, if not always the fastest."""


@dataclass(frozen=True)
class AttentionTiles:
    """Block sizes of one launch. They change the order of the sums, so the last bits of the result, and the speed."""

    block_rows: int
    """Query rows of one program: a power of two from 16 to 256."""
    block_columns: int
    """Key rows of one step of a program: a power of two from 16 to 256, 4 or more for each warp."""
    warps: int
    """Warps of one program: a power of two from 1 to 16."""
    stages: int
    """Steps whose keys and values are in shared memory or on their way there: from 2 to 8."""
    registers: int | None = None
    """Most registers of one thread, so that more programs fit on a multiprocessor: a multiple of 8 from 64 to 248, or
    None to leave it to the compiler."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError on a value out of its bound."""
        for name, smallest, largest in (
            ("block_rows", SMALLEST_BLOCK, 256),
            ("block_columns", SMALLEST_BLOCK, 256),
            ("warps", 1, 16),
        ):
            size = getattr(self, name)
            if not smallest <= size <= largest or size & (size - 1):
                raise ConfigurationError(
                    f"AttentionTiles.{name} is {size}: it must be a power of two from {smallest} to {largest}."
                )
        # Fewer columns, or one stage, and the loads are no asynchronous copies: attention_kernel says why they must be.
        if self.block_columns < 4 * self.warps:
            raise ConfigurationError(
                f"AttentionTiles.block_columns is {self.block_columns}: with {self.warps} warps it must be "
                f"{4 * self.warps} or more; take fewer warps."
            )
        if not 2 <= self.stages <= 8:
            raise ConfigurationError(f"AttentionTiles.stages is {self.stages}: it must be from 2 to 8.")
        if self.registers is not None and (not 64 <= self.registers <= 248 or self.registers % 8):
            raise ConfigurationError(
                f"AttentionTiles.registers is {self.registers}: it must be None or a multiple of 8 from 64 to 248."
            )


@dataclass(frozen=True)
class HeadSplit:
    """The channels of a head as one or two powers of two, for matrix products take no other sizes."""

    main: int
    """Channels of the first part."""
    tail: int
    """Channels of the second part, 0 for none. Those beyond the head are masked."""


def split_head(head_size: int) -> HeadSplit:
    """The cheapest cover of `head_size` channels: 72 as 64 + 16 rather than 128.

    Raises ConfigurationError unless `head_size` is a multiple of 8 from 8 to 128.
    """
    if not 8 <= head_size <= LARGEST_HEAD or head_size % 8:
        raise ConfigurationError(
            f"The head size is {head_size} channels: the attention kernel takes multiples of 8 "
            f"from 8 to {LARGEST_HEAD}."
        )
    whole = max(SMALLEST_BLOCK, 1 << (head_size - 1).bit_length())
    main = whole // 2
    tail = max(SMALLEST_BLOCK, 1 << (head_size - main - 1).bit_length())
    return HeadSplit(main, tail) if main >= SMALLEST_BLOCK and main + tail < whole else HeadSplit(whole, 0)


def attention_tiles(rows: int, heads: int, head_size: int, dtype: torch.dtype) -> AttentionTiles:
    """The block sizes for `rows` packed rows: within a tenth of the fastest measured (`benchmarks/attention.py`).

    What decides is how many waves the programs make, those that run at the same time: a large one takes 5/4 of a
    small one, and a last wave that is nearly empty costs as much as a full one. Where one wave is enough by far, a
    program gets all the registers it likes.

    A pure function of what a captured graph freezes anyway, so a replay and an eager launch take the same blocks.
    """
    if dtype == torch.float32:
        return AttentionTiles(block_rows=32, block_columns=32, warps=4, stages=2)
    stages = 2 if head_size > 96 else 3
    small_programs, large_programs = -(-rows // 64) * heads, -(-rows // 128) * heads
    if small_programs <= MULTIPROCESSORS:
        return AttentionTiles(64, 64, warps=4, stages=stages)
    if large_programs <= MULTIPROCESSORS and split_head(head_size).tail:
        return AttentionTiles(128, 64, warps=8, stages=stages)
    limited = head_size <= WIDE_HEAD
    small_waves = -(-small_programs // (3 * MULTIPROCESSORS))
    large_waves = -(-large_programs // (2 * MULTIPROCESSORS))
    if 4 * small_waves < 5 * large_waves:
        return AttentionTiles(64, 64, warps=4, stages=stages, registers=168 if limited else None)
    return AttentionTiles(128, 64, warps=8, stages=stages, registers=128 if limited else None)

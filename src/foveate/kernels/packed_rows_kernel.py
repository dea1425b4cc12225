"""How a fixed number of Triton programs shares packed rows out, whatever the bounds of the sequences are."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl

__all__ = ["bound_lanes", "own_rows"]

SMALLEST_LANES = 32
"""Sequence bounds that a program reads at once, at least: those of one warp."""


def bound_lanes(sequences: int) -> int:
    """Return the `lanes` of `own_rows` for so many sequences: a power of two above them."""
    return max(SMALLEST_LANES, 1 << sequences.bit_length())


@triton.jit
def own_rows(program, bounds, rows, sequences, lanes: tl.constexpr, block_rows: tl.constexpr):
    """The sequence that number `program` works on, its first row and end, and the first row of the program.

    The padding behind the last bound is one more sequence, number `sequences`. Sequence `s` begins at program
    `bounds[s] // block_rows + s`: the next one begins far enough behind it for all its blocks, whatever the bounds, so
    `rows // block_rows + sequences + 1` programs cover every row once. The surplus programs get a first row at or
    beyond the end. `lanes` is a power of two above `sequences`.
    """
    lane = tl.arange(0, lanes)
    edges = tl.load(bounds + lane, mask=lane <= sequences, other=0)
    begun = (lane <= sequences) & (edges // block_rows + lane <= program)
    sequence = tl.sum(begun.to(tl.int32), 0) - 1
    begin = tl.load(bounds + sequence)
    end = tl.load(bounds + tl.minimum(sequence + 1, sequences))
    end = tl.where(sequence == sequences, rows, end)
    first = begin + (program - begin // block_rows - sequence) * block_rows
    return sequence, begin, end, first

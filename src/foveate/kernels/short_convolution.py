"""The short causal depthwise convolution of LFM2 over packed sequences, with the state each sequence carries on.

The state of a sequence is its last `taps - 1` inputs, oldest first; zeros before its first token. Chunks may be of
any length, shorter than the state included: every row's inputs are found in "state, then new rows" of its own
sequence, and so is the next state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ConvolutionIndex:
    """Where the inputs of each new row lie in "the states of all sequences, then all new rows"."""

    inputs: Tensor
    """`[rows, taps]` int64: the rows that feed each new row, oldest first."""
    next_state: Tensor
    """`[sequences, taps - 1]` int64: the rows that become each sequence's state."""


def convolution_index(lengths: Sequence[int], taps: int, device: torch.device) -> ConvolutionIndex:
    """Build the index for sequences with `lengths` new rows each (all at least 1), packed in order."""
    kept = taps - 1
    length = torch.tensor(lengths, dtype=torch.int64)
    start = length.cumsum(0) - length
    sequence = torch.repeat_interleave(length)
    offset = torch.arange(int(length.sum())) - start[sequence]

    def source(sequence: Tensor, virtual_row: Tensor) -> Tensor:
        # Row `virtual_row` of "state, then new rows" of one sequence, as a row of the concatenation of all of them.
        in_state = sequence * kept + virtual_row
        in_new = len(lengths) * kept + start[sequence] + virtual_row - kept
        return torch.where(virtual_row < kept, in_state, in_new)

    inputs = source(sequence[:, None], offset[:, None] + torch.arange(taps))
    every = torch.arange(len(lengths))[:, None]
    next_state = source(every, length[:, None] + torch.arange(kept))
    return ConvolutionIndex(inputs.to(device), next_state.to(device))


def short_convolution(
    rows: Tensor, states: Tensor, weight: Tensor, bias: Tensor | None, index: ConvolutionIndex
) -> tuple[Tensor, Tensor]:
    """Convolve new `rows` `[rows, width]` of several sequences, given their `states` `[sequences, taps - 1, width]`.

    `weight` is `[width, taps]`, oldest tap first. Returns the result, like `rows`, and the next states. Sums are
    taken in float32 and rounded once.
    """
    history = torch.cat([states.flatten(0, 1), rows])
    mixed = (history[index.inputs].float() * weight.t().float()).sum(1)
    if bias is not None:
        mixed = mixed + bias.float()
    return mixed.to(rows.dtype), history[index.next_state]

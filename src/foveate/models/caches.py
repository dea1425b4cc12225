"""What a language model remembers between calls: key-value pages and convolution states, and where a batch finds its
own.

Keys and values lie in pages of a pool that all sequences share; a sequence owns the pages it needs, in any order. A
convolution state is of fixed size, one slot a sequence. Which sequence owns what is decided by the engine
(`foveate.engine.caches`); a model only follows the indices in a `SequenceBatch`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.kernels.short_convolution import ConvolutionIndex


@dataclass(frozen=True)
class CacheTensors:
    """The memory itself, allocated once."""

    keys: Tensor
    """`[attention layers, pages, page_tokens, key-value heads, head_size]`"""
    values: Tensor
    """Like `keys`."""
    states: Tensor
    """`[convolution layers, slots, taps - 1, hidden_size]`: the last inputs of each convolution, oldest first."""

    @property
    def page_tokens(self) -> int:
        """Tokens that one page holds."""
        return self.keys.shape[2]

    @property
    def num_bytes(self) -> int:
        """Bytes of all three."""
        return sum(tensor.nbytes for tensor in (self.keys, self.values, self.states))


@dataclass(frozen=True)
class SequenceBatch:
    """The new tokens of several sequences, packed one after another, and where each sequence's memory lies."""

    new_tokens: tuple[int, ...]
    """New tokens of each sequence, at least 1."""
    cached_tokens: tuple[int, ...]
    """Tokens of each sequence that are in the caches already."""
    positions: Tensor
    """`[tokens]` int64: position of each new token in its own sequence."""
    write_rows: Tensor
    """`[tokens]` int64: the row of the flattened pages that takes each new token's key and value."""
    context_rows: tuple[Tensor, ...]
    """For each sequence `[cached + new]` int64: the rows of the flattened pages that hold its context, in order."""
    slots: Tensor
    """`[sequences]` int64: the convolution-state slot of each sequence."""
    convolution: ConvolutionIndex
    """Where each new token's convolution inputs lie."""

    @property
    def last_tokens(self) -> Tensor:
        """`[sequences]` int64 on the host: the packed row of each sequence's last new token."""
        return torch.tensor(self.new_tokens).cumsum(0) - 1


@dataclass(frozen=True)
class DecodeBatch:
    """One new token of each of several sequences, in fixed buffers: nothing of it is known on the host.

    So a step over it can be captured once and replayed with other sequences. A row that belongs to nobody is padding:
    its page and its slot are dummies that no sequence owns.
    """

    positions: Tensor
    """`[rows]` int64: position of each new token in its own sequence."""
    write_rows: Tensor
    """`[rows]` int64: the row of the flattened pages that takes each new token's key and value."""
    page_tables: Tensor
    """`[rows, most pages of a sequence]` int32: the pages of each sequence, in the order of its tokens."""
    lengths: Tensor
    """`[rows]` int32, at least 1: tokens of each context, the new one included."""
    slots: Tensor
    """`[rows]` int64: the convolution-state slot of each sequence."""
    convolution: ConvolutionIndex
    """Where each new token's convolution inputs lie; depends on the number of rows alone."""


AnyBatch = SequenceBatch | DecodeBatch
"""What a language model runs: chunks of prompts, or a decode step."""

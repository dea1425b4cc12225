"""What a language model remembers between calls: key-value pages and convolution states, and where a batch finds its
own.

Keys and values lie in pages of a pool that all sequences share; a sequence owns the pages it needs, in any order. A
convolution state is of fixed size, one slot a sequence. Which sequence owns what is decided by the engine
(`foveate.engine.caches`); a model only follows the indices in a `SequenceBatch`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


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
class SequencePlaces:
    """Where the memory of several sequences lies, and which packed rows are theirs."""

    bounds: Tensor
    """`[sequences + 1]` int32: sequence s has the packed rows bounds[s] to bounds[s + 1]; unused sequences repeat the
    last offset, and the rows behind it are padding."""
    cached: Tensor
    """`[sequences]` int32: tokens of each sequence that are in the caches already."""
    page_tables: Tensor
    """`[sequences, pages]` int32: the pages of each sequence, in the order of its tokens."""
    slots: Tensor
    """`[sequences]` int64: the convolution-state slot of each sequence."""


@dataclass(frozen=True)
class SequenceBatch(SequencePlaces):
    """The new tokens of several sequences, packed one after another.

    All of it is on the device, so a prefill of so many tokens can be captured once and replayed with other sequences.
    """

    positions: Tensor
    """`[tokens]` int64: position of each new token in its own sequence."""
    write_rows: Tensor
    """`[tokens]` int64: the row of the flattened pages that takes each new token's key and value."""

    @property
    def last_tokens(self) -> Tensor:
        """`[sequences]` int64: the packed row of each sequence's last new token."""
        return self.bounds[1:].long() - 1


def sequence_batch(places: SequencePlaces, tokens: int, page_tokens: int, dummy_page: int) -> SequenceBatch:
    """Lay out `tokens` packed rows; nothing is read on the host. Padding goes to the first row of `dummy_page`."""
    bounds, last = places.bounds, places.cached.shape[0] - 1
    row = torch.arange(tokens, device=bounds.device)
    sequence = torch.searchsorted(bounds[1:].contiguous(), row, right=True).clamp_(max=last)
    is_real = row < bounds[-1]
    positions = torch.where(is_real, row - bounds[sequence] + places.cached[sequence], 0)
    pages = places.page_tables[sequence, positions // page_tokens].long()
    write_rows = torch.where(is_real, pages * page_tokens + positions % page_tokens, dummy_page * page_tokens)
    return SequenceBatch(**vars(places), positions=positions, write_rows=write_rows)


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


AnyBatch = SequenceBatch | DecodeBatch
"""What a language model runs: chunks of prompts, or a decode step."""

"""Causal grouped-query attention of new tokens over their sequences' cached keys and values."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right


class CachedSequences(Protocol):
    """What this kernel reads of a batch (see `foveate.models.caches.SequenceBatch`)."""

    @property
    def new_tokens(self) -> Sequence[int]:
        """New tokens of each sequence."""

    @property
    def cached_tokens(self) -> Sequence[int]:
        """Tokens of each sequence cached before."""

    @property
    def context_rows(self) -> Sequence[Tensor]:
        """Rows of the cache that hold each sequence's context, the new tokens included."""


def cached_attention(query: Tensor, keys: Tensor, values: Tensor, batch: CachedSequences) -> Tensor:
    """Attend from `query` `[tokens, heads, head_size]` to `keys`, `values` `[cache rows, key-value heads, head_size]`.

    The new tokens' own keys and values are in the cache already. Returns `[tokens, heads * head_size]`. Sequences are
    run one by one, so that none depends on its company.
    """
    outputs = []
    for part, cached, rows in zip(
        query.split(list(batch.new_tokens)), batch.cached_tokens, batch.context_rows, strict=True
    ):
        new = part.shape[0]
        attended = F.scaled_dot_product_attention(
            part.transpose(0, 1)[None],
            keys[rows].transpose(0, 1)[None],
            values[rows].transpose(0, 1)[None],
            attn_mask=_causal_mask(new, cached, query) if cached and new > 1 else None,
            is_causal=not cached and new > 1,
            enable_gqa=query.shape[1] != keys.shape[1],
        )
        outputs.append(attended[0].transpose(0, 1).flatten(1))
    return torch.cat(outputs)


def _causal_mask(new: int, cached: int, query: Tensor) -> Tensor:
    if query.is_cuda and query.dtype != torch.float32:
        return causal_lower_right(new, cached + new)  # For flash attention, which takes no mask from memory.
    return torch.ones(new, cached + new, dtype=torch.bool, device=query.device).tril(cached)

"""Prompts into the caches, in chunks of any length, packed without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from foveate.engine.caches import CachePool, SequenceMemory
from foveate.engine.prefill_graphs import PrefillGraphs
from foveate.engine.sampler import SamplingKind
from foveate.engine.slots import SlotTable
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.transfer import to_device


@dataclass(frozen=True)
class Chunk:
    """Some tokens of one prompt, which follow those in its caches."""

    memory: SequenceMemory
    token_ids: Tensor
    """`[tokens]` int64 on the host, at least one."""
    features: Tensor | None
    """`[placeholders of the chunk, hidden_size]`, or None where it has none."""
    is_last: bool
    """Whether the prompt ends with it: then a token follows."""


@dataclass(frozen=True)
class FirstTokens:
    """What comes after the prompts that are complete, in the order of their chunks."""

    tokens: Tensor
    """`[complete prompts]` on the device; -1 for logits that are not numbers."""
    logits: Tensor
    """`[complete prompts, vocab_size]` float32, on the device; the next run may write over both."""


class Prefill:
    """Runs chunks of prompts: on graphs, where there are any of that size, and kernel by kernel otherwise."""

    def __init__(
        self, model: Lfm2VlModel, pool: CachePool, slots: SlotTable, graphs: PrefillGraphs | None = None
    ) -> None:
        self._model, self._pool, self._slots, self._graphs = model, pool, slots, graphs

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk], kind: SamplingKind) -> FirstTokens | None:
        """Run chunks of different prompts; returns None where no prompt is complete."""
        lengths = [len(chunk.token_ids) for chunk in chunks]
        ids = torch.cat([chunk.token_ids for chunk in chunks])
        given = [chunk.features for chunk in chunks if chunk.features is not None]
        features = (torch.cat(given) if len(given) > 1 else given[0]) if given else None
        memories = [chunk.memory for chunk in chunks]
        ends = [index for index, chunk in enumerate(chunks) if chunk.is_last]
        if self._graphs is not None and self._graphs.fit(len(ids), len(chunks)):
            cached = [memory.num_tokens for memory in memories]
            self._pool.grow(list(zip(memories, lengths, strict=True)))
            self._model.embed(ids, features, out=self._graphs.embeddings[: len(ids)])
            slots = [memory.slot for memory in memories]
            self._graphs.run(slots, cached, lengths, ends)
            return FirstTokens(*self._graphs.first_tokens(len(ends), kind)) if ends else None
        batch = self._pool.append(list(zip(memories, lengths, strict=True)))
        hidden = self._model.language(self._model.embed(ids, features), batch, self._pool.tensors)
        if not ends:
            return None
        lasts = list(accumulate(lengths))
        rows = to_device(torch.tensor([lasts[end] - 1 for end in ends]), hidden.device)
        return self._first_tokens(hidden[rows], [memories[end] for end in ends], kind)

    def _first_tokens(self, hidden: Tensor, memories: Sequence[SequenceMemory], kind: SamplingKind) -> FirstTokens:
        logits, device = self._model.language.logits(hidden), hidden.device
        rows = to_device(torch.tensor([memory.slot for memory in memories]), device)
        lengths = to_device(torch.tensor([memory.num_tokens for memory in memories]), device)
        return FirstTokens(self._slots.sample(kind, logits, rows, lengths), logits)

"""Prompts into the caches, in chunks of any length, packed without padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.engine.caches import CachePool, SequenceMemory
from foveate.engine.sampler import SamplingKind
from foveate.engine.slots import SlotTable
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.transfer import to_device


@dataclass(frozen=True)
class Chunk:
    """Some tokens of one prompt, which follow those in its caches."""

    memory: SequenceMemory
    token_ids: Sequence[int]
    """At least one."""
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
    """`[complete prompts, vocab_size]` float32, on the device."""


class Prefill:
    """Runs chunks of prompts."""

    def __init__(self, model: Lfm2VlModel, pool: CachePool, slots: SlotTable) -> None:
        self._model, self._pool, self._slots = model, pool, slots

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk], kind: SamplingKind) -> FirstTokens | None:
        """Run chunks of different prompts; returns None where no prompt is complete."""
        embeddings = [self._model.embed(chunk.token_ids, chunk.features) for chunk in chunks]
        batch = self._pool.append([(chunk.memory, len(chunk.token_ids)) for chunk in chunks])
        hidden = self._model.language(torch.cat(embeddings), batch, self._pool.tensors)
        ends = [index for index, chunk in enumerate(chunks) if chunk.is_last]
        if not ends:
            return None
        device = hidden.device
        logits = self._model.language.logits(hidden[to_device(batch.last_tokens[ends], device)])
        rows = to_device(torch.tensor([chunks[index].memory.slot for index in ends]), device)
        lengths = to_device(torch.tensor([chunks[index].memory.num_tokens for index in ends]), device)
        return FirstTokens(self._slots.sample(kind, logits, rows, lengths), logits)

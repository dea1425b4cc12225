"""Who owns which pages and slots of the caches, and how a batch finds its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from foveate.errors import ConfigurationError
from foveate.models.caches import CacheTensors, SequenceBatch, SequencePlaces, sequence_batch
from foveate.models.transfer import to_device

PAGE_TOKENS = 64
"""Tokens of one page: few enough that little is wasted at the end of a sequence, enough that page lists stay short."""


@dataclass
class SequenceMemory:
    """What one sequence owns. Invariant: `num_tokens <= len(pages) * page_tokens`."""

    slot: int
    """Its convolution-state slot."""
    pages: list[int] = field(default_factory=list)
    """Its pages, in the order of its tokens."""
    num_tokens: int = 0
    """Tokens in the caches so far."""


class CachePool:
    """Hands out pages and slots, and takes them back.

    A slot's state is zeroed when it is handed out; a page is not, since nothing reads beyond a sequence's own tokens.
    The last `spare` pages and slots are never handed out: padding writes there.
    """

    def __init__(self, tensors: CacheTensors, *, spare: int = 0) -> None:
        self.tensors = tensors
        self.num_pages = tensors.keys.shape[1] - spare
        self.num_slots = tensors.states.shape[1] - spare
        self._free_pages = list(range(self.num_pages))[::-1]
        self._free_slots = list(range(self.num_slots))[::-1]

    @property
    def num_free_pages(self) -> int:
        """Pages that nobody owns."""
        return len(self._free_pages)

    @property
    def num_free_slots(self) -> int:
        """Slots that nobody owns."""
        return len(self._free_slots)

    def pages_for(self, tokens: int) -> int:
        """Return how many pages so many tokens of one sequence take."""
        return -(-tokens // self.tensors.page_tokens)

    def can_open(self, tokens: int) -> bool:
        """Whether a sequence with room for so many tokens can be started now."""
        return bool(self._free_slots) and self.pages_for(tokens) <= len(self._free_pages)

    def open(self, tokens: int = 0) -> SequenceMemory:
        """Start a sequence: a slot of its own, with a state of zeros, and pages for so many tokens.

        Raises ConfigurationError, and changes nothing, when there are not enough.
        """
        if not self._free_slots:
            raise ConfigurationError(f"all {self.num_slots} sequence slots are in use")
        pages = self._take(self.pages_for(tokens))
        memory = SequenceMemory(self._free_slots.pop(), pages)
        self.restart(memory)
        return memory

    def restart(self, memory: SequenceMemory) -> None:
        """Forget the tokens of a sequence; its pages and its slot stay its own."""
        memory.num_tokens = 0
        self.tensors.states[:, memory.slot].zero_()

    def close(self, memory: SequenceMemory) -> None:
        """End a sequence and take its slot and pages back; ValueError the second time."""
        if memory.slot in self._free_slots:
            raise ValueError(f"slot {memory.slot} is free already: this sequence was closed before")
        self._free_slots.append(memory.slot)
        self._free_pages += memory.pages
        memory.pages = []

    def append(self, sequences: Sequence[tuple[SequenceMemory, int]]) -> SequenceBatch:
        """Make room for new tokens, at least one a sequence, and return where everything lies.

        Raises ConfigurationError, and changes nothing, when there are not enough free pages.
        """
        cached = [memory.num_tokens for memory, _ in sequences]
        self.grow(sequences)
        return self._batch(sequences, cached)

    def grow(self, sequences: Sequence[tuple[SequenceMemory, int]]) -> None:
        """Make room for new tokens, and count them; raises as `append` does."""
        needs = [max(0, self.pages_for(memory.num_tokens + new) - len(memory.pages)) for memory, new in sequences]
        taken = iter(self._take(sum(needs)))
        for (memory, new), need in zip(sequences, needs, strict=True):
            memory.pages += [next(taken) for _ in range(need)]
            memory.num_tokens += new

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_pages):
            raise ConfigurationError(
                f"{count} cache pages of {self.tensors.page_tokens} tokens are needed, {len(self._free_pages)} are free"
            )
        return [self._free_pages.pop() for _ in range(count)]

    def _batch(self, sequences: Sequence[tuple[SequenceMemory, int]], cached: Sequence[int]) -> SequenceBatch:
        device = self.tensors.keys.device
        tables = torch.zeros(len(sequences), max(len(memory.pages) for memory, _ in sequences), dtype=torch.int32)
        for row, (memory, _) in zip(tables, sequences, strict=True):
            row[: len(memory.pages)] = torch.tensor(memory.pages, dtype=torch.int32)
        bounds = torch.tensor([0, *accumulate(new for _, new in sequences)], dtype=torch.int32)
        places = SequencePlaces(
            bounds=to_device(bounds, device),
            cached=to_device(torch.tensor(cached, dtype=torch.int32), device),
            page_tables=to_device(tables, device),
            slots=to_device(torch.tensor([memory.slot for memory, _ in sequences]), device),
        )
        return sequence_batch(places, int(bounds[-1]), self.tensors.page_tokens, dummy_page=0)

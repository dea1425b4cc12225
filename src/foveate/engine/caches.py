"""Who owns which pages and slots of the caches, and how a batch finds its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from foveate.errors import ConfigurationError
from foveate.kernels.short_convolution import ConvolutionIndex, convolution_index
from foveate.models.caches import CacheTensors, SequenceBatch
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

    def __init__(self, tensors: CacheTensors, conv_taps: int, *, spare: int = 0) -> None:
        self.tensors = tensors
        self._conv_taps = conv_taps
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
        needs = [max(0, self.pages_for(memory.num_tokens + new) - len(memory.pages)) for memory, new in sequences]
        taken = iter(self._take(sum(needs)))
        for (memory, _), need in zip(sequences, needs, strict=True):
            memory.pages += [next(taken) for _ in range(need)]
        batch = self._batch(sequences)
        for memory, new in sequences:
            memory.num_tokens += new
        return batch

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_pages):
            raise ConfigurationError(
                f"{count} cache pages of {self.tensors.page_tokens} tokens are needed, {len(self._free_pages)} are free"
            )
        return [self._free_pages.pop() for _ in range(count)]

    def _batch(self, sequences: Sequence[tuple[SequenceMemory, int]]) -> SequenceBatch:
        device = self.tensors.keys.device
        new_tokens = tuple(new for _, new in sequences)
        cached = tuple(memory.num_tokens for memory, _ in sequences)
        contexts = tuple(self._rows(memory, memory.num_tokens + new) for memory, new in sequences)
        positions = torch.cat([torch.arange(start, start + new) for start, new in zip(cached, new_tokens, strict=True)])
        convolution = convolution_index(new_tokens, self._conv_taps, torch.device("cpu"))
        write_rows = torch.cat([rows[start:] for rows, start in zip(contexts, cached, strict=True)])
        return SequenceBatch(
            new_tokens=new_tokens,
            cached_tokens=cached,
            positions=to_device(positions, device),
            write_rows=to_device(write_rows, device),
            context_rows=to_device(torch.cat(contexts), device).split([len(rows) for rows in contexts]),
            slots=to_device(torch.tensor([memory.slot for memory, _ in sequences]), device),
            convolution=ConvolutionIndex(
                to_device(convolution.inputs, device), to_device(convolution.next_state, device)
            ),
        )

    def _rows(self, memory: SequenceMemory, count: int) -> torch.Tensor:
        page_tokens = self.tensors.page_tokens
        rows = torch.tensor(memory.pages)[:, None] * page_tokens + torch.arange(page_tokens)
        return rows.flatten()[:count]

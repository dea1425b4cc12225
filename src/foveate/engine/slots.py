"""What the device knows of each running sequence, one row a slot, so that a decode step needs nothing but slot numbers.

The last row is a dummy. The rows of a batch that pad it to its size point there: they read and write the dummy's page
and state, which no sequence owns.
"""

import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from foveate.config import MAX_SEED, SamplingParams
from foveate.engine.caches import SequenceMemory
from foveate.engine.sampler import SamplingKind, SamplingRows, choose, has_penalties, likeliest
from foveate.models.caches import DecodeBatch, SequenceBatch, SequencePlaces, sequence_batch
from foveate.models.transfer import to_device


class SlotTable:
    """The rows. Invariant: between steps, `tokens[slot]` is the token to run next and `lengths[slot]` its position."""

    def __init__(
        self, slots: int, *, most_pages: int, dummy_page: int, page_tokens: int, vocab_size: int, device: torch.device
    ) -> None:
        self.dummy = slots
        self._dummy_page, self._page_tokens, self._device = dummy_page, page_tokens, device
        rows = slots + 1
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.int64, device=device)
        self.page_tables = torch.full((rows, most_pages), dummy_page, dtype=torch.int32, device=device)
        # temperature, top_p, min_p and the penalties: repetition, presence, frequency
        self._numbers = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 0.0], device=device).repeat(rows, 1)
        self._counters = torch.zeros(rows, 3, dtype=torch.int64, device=device)  # top_k, seed, tokens drawn
        self._in_prompt = torch.zeros(rows, vocab_size, dtype=torch.bool, device=device)
        self._counts = torch.zeros(rows, vocab_size, dtype=torch.int32, device=device)

    def set(self, memory: SequenceMemory, params: SamplingParams, prompt_ids: Sequence[int]) -> None:
        """Give a row to a sequence that was just opened with all the pages it will need."""
        slot = memory.slot
        seed = secrets.randbelow(MAX_SEED) if params.seed is None else params.seed
        # More than the vocabulary keeps all, and so does any larger number.
        counters = torch.tensor((min(params.top_k, self._in_prompt.shape[1]), seed, 0))
        numbers = (params.temperature, params.top_p, params.min_p, params.repetition_penalty)
        penalties = (params.presence_penalty, params.frequency_penalty)
        # One copy to the device for all of it, as this is done between two steps of those who are answered.
        parts = (counters, torch.tensor((*numbers, *penalties)), torch.tensor(memory.pages, dtype=torch.int32))
        sent = to_device(torch.cat([part.view(torch.uint8) for part in parts]), self._device)
        whole, real, pages = sent.split([part.nbytes for part in parts])
        self._counters[slot] = whole.view(torch.int64)
        self._numbers[slot] = real.view(torch.float32)
        # What a row had behind these pages is never read.
        self.page_tables[slot, : len(memory.pages)] = pages.view(torch.int32)
        if has_penalties(params):
            self._in_prompt[slot].zero_().index_fill_(0, to_device(torch.tensor(prompt_ids), self._device), True)
            self._counts[slot].zero_()

    def decode_batch(self, rows: Tensor) -> DecodeBatch:
        """Return where the next token of each of `rows` `[rows]` lies; reads nothing on the host."""
        positions, page_tables = self.lengths[rows], self.page_tables[rows]
        pages = page_tables.gather(1, positions[:, None] // self._page_tokens)[:, 0].long()
        return DecodeBatch(
            positions=positions,
            write_rows=pages * self._page_tokens + positions % self._page_tokens,
            page_tables=page_tables,
            lengths=(positions + 1).to(torch.int32),
            slots=rows,
        )

    def prefill_batch(self, rows: Tensor, bounds: Tensor, cached: Tensor, tokens: int) -> SequenceBatch:
        """Return where `tokens` packed prompt tokens of the slots `rows` `[sequences]` lie; reads nothing on the host.

        `bounds` and `cached` are as in `SequenceBatch`.
        """
        places = SequencePlaces(bounds, cached, self.page_tables[rows], rows)
        return sequence_batch(places, tokens, self._page_tokens, self._dummy_page)

    def sample(self, kind: SamplingKind, logits: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
        """Choose the next token of each row, and make it the one that runs next, at the position `lengths` `[rows]`.

        Returns the tokens; -1 where the logits are not numbers.
        """
        if kind is SamplingKind.GREEDY:
            tokens = likeliest(logits)
        else:
            tokens = choose(logits, self._sampling_rows(rows), is_filtered=kind is SamplingKind.FILTERED)
        usable = tokens.clamp(min=0)
        self.tokens.index_copy_(0, rows, usable)
        self.lengths.index_copy_(0, rows, torch.where(rows == self.dummy, 0, lengths))
        if kind is not SamplingKind.GREEDY:
            self._counters[:, 2].index_add_(0, rows, torch.ones_like(rows))
            cells = rows * self._counts.shape[1] + usable
            self._counts.view(-1).index_add_(0, cells, torch.ones_like(cells, dtype=torch.int32))
        return tokens

    def _sampling_rows(self, rows: Tensor) -> SamplingRows:
        numbers, counters = self._numbers[rows].split(1, 1), self._counters[rows].split(1, 1)
        columns = [*numbers, *counters, self._in_prompt[rows], self._counts[rows]]  # in the order of the fields
        return SamplingRows(*columns)

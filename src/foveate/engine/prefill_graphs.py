"""Prefill as captured graphs: one for each of some numbers of packed prompt tokens, and one for the tokens that follow.

Launched kernel by kernel, a prompt of a few hundred tokens takes the host several times as long as the device. What
changes from run to run is written into fixed buffers: the embedded tokens, and a plan of a few whole numbers a
sequence. Rows behind the last token are padding, which costs its matrix products and touches nobody's memory.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from foveate.engine.decoder import Progress, StepBackend, Work, step_sizes
from foveate.engine.sampler import SamplingKind
from foveate.engine.slots import SlotTable
from foveate.models.caches import CacheTensors
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.transfer import to_device

LARGEST = 8192
"""Tokens of the largest graph: beyond it the host is not what a prefill waits for."""


def prefill_sizes(most: int) -> list[int]:
    """Return the numbers of tokens that graphs are recorded for, up to `most`: at most an eighth of one is padding,
    or 64 tokens."""
    sizes, step = [16, 32, 64], 64
    while sizes[-1] < most:
        sizes.append(sizes[-1] + step)
        if sizes[-1] >= 16 * step:
            step *= 2
    return [size for size in sizes if size < most] + [most]


class PrefillGraphs:
    """Runs packed chunks of prompts, and chooses the first tokens. Invariant: nothing is recorded after `record`."""

    def __init__(
        self, model: Lfm2VlModel, caches: CacheTensors, slots: SlotTable, backend: StepBackend, most_tokens: int
    ) -> None:
        """`most_tokens` is the most that one run has."""
        self._model, self._caches, self._slots, self._backend = model, caches, slots, backend
        self._sizes = prefill_sizes(min(most_tokens, LARGEST))
        self._most_sequences = slots.dummy
        device, most = model.device, self._most_sequences
        self.embeddings = torch.zeros(
            self._sizes[-1], model.config.language.hidden_size, dtype=model.dtype, device=device
        )
        """`[tokens, hidden_size]`: the caller writes the embedded tokens of the next run here."""
        self._plan = torch.zeros(6 * most + 1, dtype=torch.int64, device=device)
        self._ends = self.embeddings.new_zeros(most, self.embeddings.shape[1])
        self._logits = torch.zeros(most, model.config.language.vocab_size, dtype=torch.float32, device=device)
        self._tokens = torch.zeros(most, dtype=torch.int64, device=device)
        self._runs: dict[int, Work] = {}
        self._firsts: dict[tuple[int, SamplingKind], Work] = {}

    @torch.inference_mode()
    def record(self, progress: Progress | None = None) -> None:
        """Record everything, largest first, on padding alone."""
        self._load([], [], [], [])
        firsts = [(count, kind) for count in reversed(step_sizes(self._most_sequences)) for kind in SamplingKind]
        for number, size in enumerate(reversed(self._sizes), 1):
            self._runs[size] = self._backend.capture(partial(self._run, size))
            if progress:
                progress(number, len(self._sizes) + len(firsts))
        for number, key in enumerate(firsts, len(self._sizes) + 1):
            self._firsts[key] = self._backend.capture(partial(self._choose, *key))
            if progress:
                progress(number, len(self._sizes) + len(firsts))

    def fit(self, tokens: int, sequences: int) -> bool:
        """Whether a run of so many tokens, of so many sequences, has a graph."""
        return tokens <= self._sizes[-1] and sequences <= self._most_sequences

    def run(self, slots: Sequence[int], cached: Sequence[int], new: Sequence[int], ends: Sequence[int]) -> None:
        """Run `new` tokens, embedded in `embeddings`, of the sequences of these slots, behind their `cached` ones.

        `ends` are the sequences whose prompts are complete with it.
        """
        self._load(slots, cached, new, ends)
        total = sum(new)
        self._runs[next(size for size in self._sizes if size >= total)]()

    def first_tokens(self, count: int, kind: SamplingKind) -> tuple[Tensor, Tensor]:
        """Return the tokens `[count]` that follow the complete prompts of the last run, and their logits
        `[count, vocab_size]`; the next call writes over both."""
        size = next(size for size in step_sizes(self._most_sequences) if size >= count)
        self._firsts[size, kind]()
        return self._tokens[:count], self._logits[:count]

    def _load(self, slots: Sequence[int], cached: Sequence[int], new: Sequence[int], ends: Sequence[int]) -> None:
        """Send the plan: slots, cached tokens, bounds, then of the ends the last rows, slots and lengths."""
        most, dummy = self._most_sequences, self._slots.dummy
        bounds = [0, *accumulate(new)]
        plan = [*slots, *[dummy] * (most - len(slots)), *cached, *[0] * (most - len(cached))]
        plan += [*bounds, *[bounds[-1]] * (most + 1 - len(bounds))]
        unused = most - len(ends)
        plan += [*(bounds[end + 1] - 1 for end in ends), *[0] * unused]
        plan += [*(slots[end] for end in ends), *[dummy] * unused]
        plan += [*(cached[end] + new[end] for end in ends), *[0] * unused]
        self._plan.copy_(to_device(torch.tensor(plan), self._plan.device))

    def _parts(self) -> tuple[Tensor, ...]:
        most = self._most_sequences
        return self._plan.split([most, most, most + 1, most, most, most])

    def _run(self, size: int) -> None:
        slots, cached, bounds, last_rows, _, _ = self._parts()
        batch = self._slots.prefill_batch(slots, bounds.int(), cached.int(), size)
        hidden = self._model.language(self.embeddings[:size], batch, self._caches)
        self._ends.copy_(hidden[last_rows])

    def _choose(self, count: int, kind: SamplingKind) -> None:
        *_, slots, lengths = self._parts()
        logits = self._model.language.logits(self._ends[:count])
        self._logits[:count].copy_(logits)
        self._tokens[:count].copy_(self._slots.sample(kind, logits, slots[:count], lengths[:count]))

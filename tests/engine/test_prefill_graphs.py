"""Prefill over fixed buffers: padding, company and what lay there before change nothing, nothing is recorded later."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

import foveate
from foveate.config import SamplingParams
from foveate.engine.caches import SequenceMemory
from foveate.engine.memory import EngineMemory, allocate
from foveate.engine.prefill import Chunk, Prefill
from foveate.engine.prefill_graphs import PrefillGraphs, prefill_sizes
from foveate.engine.sampler import SamplingKind
from foveate.engine.settings import EngineSettings
from tests.engine.stepping import RecordingBackend

SEQUENCES = 5
MOST_TOKENS = 100
LENGTHS = (1, 2, 70, 15, 64)


def test_sizes_end_with_the_most_and_leave_little_padding():
    assert prefill_sizes(1) == [1]
    assert prefill_sizes(64) == [16, 32, 64]
    assert prefill_sizes(200) == [16, 32, 64, 128, 192, 200]
    sizes = prefill_sizes(2048)
    assert sizes[-3:] == [1792, 1920, 2048]
    assert all(larger - size <= max(64, size / 8) for size, larger in pairwise(sizes))


class Prompts:
    """Some sequences with prompts of noise, and what prefills them."""

    def __init__(self, vlm: foveate.VLM, *, on_graphs: bool, held_before: float = 0.0) -> None:
        settings = EngineSettings(max_running=SEQUENCES, cache_megabytes=64)
        self.memory: EngineMemory = allocate(vlm.model, settings)
        pool, slots = self.memory.pool, self.memory.slots
        for tensor in (pool.tensors.keys, pool.tensors.values, pool.tensors.states):
            tensor.fill_(held_before)
        self.backend, graphs = RecordingBackend(), None
        if on_graphs:
            graphs = PrefillGraphs(vlm.model, pool.tensors, slots, self.backend, MOST_TOKENS)
            graphs.embeddings.fill_(held_before)
            graphs.record()
        self.prefill = Prefill(vlm.model, pool, slots, graphs)
        image, hidden = vlm.model.config.image_token_id, vlm.model.config.language.hidden_size
        generator = torch.Generator().manual_seed(0)
        self.ids, self.features, self.memories = [], [], list[SequenceMemory]()
        for length in LENGTHS:
            ids = torch.randint(500, 900, (length,), generator=generator)
            ids[length // 3 : length // 2] = image
            self.ids.append(ids)
            self.features.append(torch.randn(int((ids == image).sum()), hidden, generator=generator) * 0.02)
            own = pool.open(length + 10)
            slots.set(own, SamplingParams(), ids.tolist())
            self.memories.append(own)
        self.image = image

    def run(self, shares: Sequence[tuple[int, int, int]], kind: SamplingKind = SamplingKind.GREEDY) -> list[int]:
        """Run (sequence, first, end) of some prompts; returns the tokens that follow those that are complete."""
        chunks = []
        for number, first, end in shares:
            ids = self.ids[number]
            before, own = (int((part == self.image).sum()) for part in (ids[:first], ids[first:end]))
            features = self.features[number][before : before + own] if own else None
            chunks.append(Chunk(self.memories[number], ids[first:end], features, end == len(ids)))
        made = self.prefill.run(chunks, kind)
        if made is None:
            return []
        assert made.logits.shape == (len(made.tokens), made.logits.shape[1])
        return made.tokens.tolist()


@pytest.fixture(scope="module")
def alone(vlm: foveate.VLM) -> list[int]:
    """The first token of each prompt, run by itself without graphs."""
    prompts = Prompts(vlm, on_graphs=False)
    return [prompts.run([(number, 0, length)])[0] for number, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("kind", SamplingKind)
@pytest.mark.parametrize("held_before", [0.0, torch.nan])
def test_padding_and_company_change_no_token(
    vlm: foveate.VLM, alone: list[int], kind: SamplingKind, held_before: float
):
    prompts = Prompts(vlm, on_graphs=True, held_before=held_before)
    together = prompts.run([(0, 0, 1), (2, 0, 70), (3, 0, 15)], kind)
    assert together == [alone[0], alone[2], alone[3]]
    assert prompts.run([(4, 0, 64), (1, 0, 2)], kind) == [alone[4], alone[1]]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 33])
def test_chunks_of_any_length_give_the_same_token(vlm: foveate.VLM, alone: list[int], length: int):
    """Also chunks shorter than the convolution's state, and across the end of a page."""
    prompts = Prompts(vlm, on_graphs=True)
    tokens = []
    for first in range(0, LENGTHS[2], length):
        share = (2, first, min(first + length, LENGTHS[2]))
        tokens += prompts.run([share, (4, first, min(first + length, LENGTHS[4]))] if first < LENGTHS[4] else [share])
    assert tokens[-1] == alone[2]
    assert alone[4] in tokens[:-1] or tokens[0] == alone[4]


def test_what_is_larger_than_any_graph_runs_without(vlm: foveate.VLM, alone: list[int]):
    prompts = Prompts(vlm, on_graphs=True)
    prompts.backend.replays.clear()
    assert prompts.run([(2, 0, 70), (4, 0, 64)]) == [alone[2], alone[4]]
    assert prompts.backend.replays == []


def test_graphs_are_recorded_once_and_the_smallest_that_fits_is_replayed(vlm: foveate.VLM):
    prompts = Prompts(vlm, on_graphs=True)
    sizes, recorded = prefill_sizes(MOST_TOKENS)[::-1], prompts.backend.captures
    prompts.backend.replays.clear()
    prompts.run([(2, 0, 33)])
    assert prompts.backend.replays == [sizes.index(64)]
    prompts.run([(2, 33, 65), (0, 0, 1)])
    assert prompts.backend.replays[1] == sizes.index(64)
    assert len(prompts.backend.replays) == 3  # and the choice of the first token of the second
    assert prompts.backend.captures == recorded


def test_padding_writes_to_its_own_page_and_state_alone(vlm: foveate.VLM):
    prompts = Prompts(vlm, on_graphs=True)
    pool = prompts.memory.pool
    before = [tensor.clone() for tensor in (pool.tensors.keys, pool.tensors.values, pool.tensors.states)]
    prompts.run([(3, 0, 15)])
    for old, new in zip(before, (pool.tensors.keys, pool.tensors.values), strict=False):
        changed = (old != new).any(-1).any(-1).any(0)  # [pages, page_tokens]
        rows = {(page, row) for page, row in changed.nonzero().tolist() if page != pool.num_pages}
        assert rows == {(prompts.memories[3].pages[0], row) for row in range(15)}
    slots = (before[2] != pool.tensors.states).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
    assert set(slots) <= {prompts.memories[3].slot, pool.num_slots}
    assert prompts.memories[3].slot in slots

"""No page and no slot has two owners, whatever is opened, filled and closed; what does not fit changes nothing."""

from itertools import accumulate

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foveate.engine.caches import CachePool, SequenceMemory
from foveate.errors import ConfigurationError
from foveate.models.caches import CacheTensors

PAGES, PAGE_TOKENS, SLOTS, TAPS = 9, 4, 4, 3


def new_pool() -> CachePool:
    keys = torch.zeros(2, PAGES, PAGE_TOKENS, 1, 1)
    return CachePool(CacheTensors(keys, torch.zeros_like(keys), torch.ones(3, SLOTS, TAPS - 1, 2)))


class PoolLife(RuleBasedStateMachine):
    """Opens, appends and closes in any order, and keeps its own account of who owns what."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = new_pool()
        self.lives: list[SequenceMemory] = []

    @rule()
    def open(self) -> None:
        if len(self.lives) == SLOTS:
            with pytest.raises(ConfigurationError, match="all 4 sequence slots are in use"):
                self.pool.open()
        else:
            self.lives.append(self.pool.open())
            assert not self.pool.tensors.states[:, self.lives[-1].slot].any()
            self.pool.tensors.states[:, self.lives[-1].slot] = 1

    @precondition(lambda self: self.lives)
    @rule(choice=st.randoms(use_true_random=False))
    def close(self, choice) -> None:
        self.pool.close(self.lives.pop(choice.randrange(len(self.lives))))

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.lives), min_size=1, unique_by=id))
        parts = [(memory, data.draw(st.integers(1, 9))) for memory in chosen]
        needed = sum(-(-(memory.num_tokens + new) // PAGE_TOKENS) - len(memory.pages) for memory, new in parts)
        before = [(memory.num_tokens, list(memory.pages)) for memory in self.lives]
        free = self.pool.num_free_pages
        if needed > free:
            with pytest.raises(ConfigurationError, match=rf"{needed} cache pages .* are needed, {free} are free"):
                self.pool.append(parts)
            assert [(memory.num_tokens, memory.pages) for memory in self.lives] == before
            assert self.pool.num_free_pages == free
        else:
            self.check_batch(parts)

    def check_batch(self, parts: list[tuple[SequenceMemory, int]]) -> None:
        """Compare a batch with a plain loop over its tokens."""
        cached = [memory.num_tokens for memory, _ in parts]
        batch = self.pool.append(parts)
        rows = [
            [memory.pages[token // PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS for token in range(start + new)]
            for (memory, new), start in zip(parts, cached, strict=True)
        ]
        for (memory, _), table in zip(parts, batch.page_tables.tolist(), strict=True):
            assert table[: len(memory.pages)] == memory.pages
            assert set(table[len(memory.pages) :]) <= {0}
        assert batch.write_rows.tolist() == [
            row for part, start in zip(rows, cached, strict=True) for row in part[start:]
        ]
        assert batch.positions.tolist() == [
            start + token for (_, new), start in zip(parts, cached, strict=True) for token in range(new)
        ]
        assert batch.slots.tolist() == [memory.slot for memory, _ in parts]
        assert batch.cached.tolist() == cached
        bounds = [0, *accumulate(new for _, new in parts)]
        assert batch.bounds.tolist() == bounds
        assert batch.last_tokens.tolist() == [end - 1 for end in bounds[1:]]

    @invariant()
    def every_page_and_slot_has_one_owner(self) -> None:
        pages = [page for memory in self.lives for page in memory.pages]
        slots = [memory.slot for memory in self.lives]
        assert len(set(pages)) == len(pages) == PAGES - self.pool.num_free_pages
        assert len(set(slots)) == len(slots) == SLOTS - self.pool.num_free_slots
        assert set(pages) <= set(range(PAGES))
        assert all(memory.num_tokens <= len(memory.pages) * PAGE_TOKENS for memory in self.lives)


TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_sequence_that_is_closed_twice_is_refused():
    pool = new_pool()
    memory = pool.open()
    pool.close(memory)
    with pytest.raises(ValueError, match="closed before"):
        pool.close(memory)


def test_all_that_was_closed_can_be_had_again():
    pool = new_pool()
    for _ in range(3):
        memory = pool.open()
        pool.append([(memory, PAGES * PAGE_TOKENS)])
        assert pool.num_free_pages == 0
        pool.close(memory)
        assert (pool.num_free_pages, pool.num_free_slots) == (PAGES, SLOTS)


def test_the_bytes_of_a_pool_are_those_of_its_tensors():
    assert new_pool().tensors.num_bytes == 4 * (2 * 2 * PAGES * PAGE_TOKENS + 3 * SLOTS * (TAPS - 1) * 2)


def test_a_sequence_may_have_all_its_pages_from_the_start_or_is_not_begun():
    pool = new_pool()
    memory = pool.open(2 * PAGE_TOKENS + 1)
    assert (len(memory.pages), memory.num_tokens) == (3, 0)
    pages = list(memory.pages)
    pool.append([(memory, 2 * PAGE_TOKENS + 1)])
    assert memory.pages == pages
    free = (pool.num_free_pages, pool.num_free_slots)
    assert pool.can_open((PAGES - 3) * PAGE_TOKENS)
    assert not pool.can_open((PAGES - 3) * PAGE_TOKENS + 1)
    with pytest.raises(ConfigurationError, match=f"{PAGES - 2} cache pages"):
        pool.open((PAGES - 3) * PAGE_TOKENS + 1)
    assert (pool.num_free_pages, pool.num_free_slots) == free


def test_what_is_spare_is_never_handed_out():
    keys = torch.zeros(2, PAGES, PAGE_TOKENS, 1, 1)
    tensors = CacheTensors(keys, torch.zeros_like(keys), torch.ones(3, SLOTS, TAPS - 1, 2))
    pool = CachePool(tensors, spare=1)
    memories = [pool.open(0) for _ in range(SLOTS - 1)]
    pool.append([(memories[0], (PAGES - 1) * PAGE_TOKENS)])
    assert (pool.num_free_pages, pool.num_free_slots) == (0, 0)
    assert PAGES - 1 not in memories[0].pages
    assert SLOTS - 1 not in [memory.slot for memory in memories]
    assert not pool.can_open(0)


def test_a_sequence_that_starts_again_has_its_pages_no_tokens_and_a_state_of_zeros():
    pool = new_pool()
    memory = pool.open(3)
    pool.append([(memory, 3)])
    pool.tensors.states[:, memory.slot] = 5
    pages = list(memory.pages)
    pool.restart(memory)
    assert (memory.pages, memory.num_tokens) == (pages, 0)
    assert not pool.tensors.states[:, memory.slot].any()

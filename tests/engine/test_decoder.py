"""Decode steps over fixed buffers: padding changes nothing, garbage is never read, nothing is recorded afterwards."""

import pytest
import torch

import foveate
from foveate.engine.decoder import step_sizes
from foveate.engine.sampler import SamplingKind
from tests.engine.stepping import RUNNING, STEPS, RecordingBackend, Running


def test_sizes_are_close_to_each_other_and_end_with_the_most():
    assert step_sizes(32) == [1, 2, 4, 8, 16, 24, 32]
    assert step_sizes(1) == [1]
    assert step_sizes(3) == [1, 2, 3]
    assert step_sizes(9) == [1, 2, 4, 8, 9]
    assert step_sizes(20) == [1, 2, 4, 8, 16, 20]


@pytest.fixture(scope="module")
def alone(vlm: foveate.VLM) -> dict[int, list[int]]:
    """The tokens of each sequence, decoded by itself."""
    return Running(vlm).decode([[number] for number in range(RUNNING) for _ in range(STEPS)])


@pytest.mark.parametrize("kind", SamplingKind)
@pytest.mark.parametrize("count", [2, 3, 5, 8, 9])
def test_padding_and_company_change_no_token(
    vlm: foveate.VLM, alone: dict[int, list[int]], count: int, kind: SamplingKind
):
    """Of three sequences four rows run, of five eight; a greedy request gets its tokens from every kind of step."""
    tokens = Running(vlm).decode([list(range(count))] * STEPS, kind)
    assert all(tokens[number] == alone[number] for number in range(count))


def test_sequences_may_join_and_leave_in_any_order(vlm: foveate.VLM, alone: dict[int, list[int]]):
    batches = [[(step + shift) % RUNNING for shift in range(1 + step % RUNNING)] for step in range(3 * RUNNING)]
    tokens = Running(vlm).decode(batches)
    assert all(tokens[number] == alone[number][: len(tokens[number])] for number in range(RUNNING))
    assert sum(len(each) for each in tokens.values()) == RUNNING + sum(map(len, batches))


def test_what_nobody_wrote_is_never_read(vlm: foveate.VLM, alone: dict[int, list[int]]):
    """All pages and all states are NaN before the first sequence, and the padding's stay so."""
    tokens = Running(vlm, held_before=torch.nan).decode([list(range(5))] * STEPS)
    assert all(tokens[number] == alone[number] for number in range(5))


def test_padding_writes_to_its_own_page_and_state_alone(vlm: foveate.VLM):
    running = Running(vlm)
    pool = running.memory.pool
    before = [pool.tensors.keys.clone(), pool.tensors.values.clone(), pool.tensors.states.clone()]
    owned = pool.num_pages - pool.num_free_pages
    assert owned > 0
    running.decode([[0, 1, 2]])
    after = [pool.tensors.keys, pool.tensors.values, pool.tensors.states]
    for old, new in zip(before[:2], after[:2], strict=True):
        changed = (old != new).any(-1).any(-1).any(0)  # [pages, page_tokens]
        rows = [(page, row) for page, row in changed.nonzero().tolist() if page != pool.num_pages]
        assert len(rows) == 3
    slots = (before[2] != after[2]).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
    assert set(slots) == {*running.slots[:3], pool.num_slots}


def test_steps_are_recorded_once_and_the_smallest_that_fits_is_replayed(vlm: foveate.VLM):
    backend = RecordingBackend()
    running = Running(vlm, backend=backend)
    sizes = step_sizes(RUNNING)[::-1]
    assert backend.captures == len(sizes) * len(SamplingKind)
    for count in range(1, RUNNING + 1):
        for kind in SamplingKind:
            backend.replays.clear()
            running.decode([list(range(count))], kind)
            smallest = min(size for size in sizes if size >= count)
            assert backend.replays == [sizes.index(smallest) * len(SamplingKind) + kind]
    assert backend.captures == len(sizes) * len(SamplingKind)

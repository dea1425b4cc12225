"""What the manager counts and reports."""

import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.graphs import EncoderCudaGraphManager

from .checks import CPU, MANY, RecordingBackend, captured
from .fake_encoder import BUDGETS, FakeEncoder, RowBatch, settings

TILE = st.integers(1, 20) | st.integers(30, 40)
BATCH = st.tuples(st.lists(st.lists(TILE, max_size=4), max_size=8), st.sampled_from(["image", "audio"]))


@MANY
@given(batches=st.lists(BATCH, max_size=4))
def test_every_count_is_the_sum_over_the_plans_and_reasons_sum_to_what_ran_eagerly(
    batches: list[tuple[list[list[int]], str]],
) -> None:
    backend = RecordingBackend()
    manager = captured(FakeEncoder(), settings(), backend=backend)
    backend.replays.clear()
    items = tiles = tokens = eager_tokens = runs = 0
    for shape, modality in batches:
        batch = RowBatch.of(*shape, modality=modality)
        plan = manager.plan(batch)
        manager.execute(batch, plan=plan)
        items, tiles, tokens = items + len(shape), tiles + len(batch.tiles), tokens + batch.tokens
        eager_tokens += sum(run.tokens for run in plan.eager_runs)
        runs += len(plan.runs)
    stats = manager.stats
    assert (stats.batches, stats.items, stats.tiles) == (len(batches), items, tiles)
    assert stats.tiles == stats.replayed_tiles + sum(stats.eager_tiles_by_reason.values())
    assert runs == sum(stats.replays.values()) + sum(stats.eager_runs.values())
    assert set(stats.eager_runs) == set(stats.eager_tiles_by_reason)
    assert stats.real_tokens + eager_tokens == tokens
    assert stats.real_tokens + stats.padded_tokens == sum(budget * count for budget, count in stats.replays.items())
    assert stats.replays == Counter(sorted(BUDGETS, reverse=True)[number] for number in backend.replays)


def test_reports_are_largest_first_with_the_time_of_a_replay_and_memory_counts_the_buffers() -> None:
    manager = captured(FakeEncoder(), settings())
    assert [report.capacity.tokens for report in manager.reports] == sorted(BUDGETS, reverse=True)
    assert all(report.replay_ms > 0 and report.fault is None for report in manager.reports)
    rows, lengths, output = 2 * 32 * 3 * 4, 8 * 8, 32 * 4 * 4
    assert manager.memory.buffer_bytes == rows + lengths + output
    assert manager.memory.total_bytes == manager.memory.buffer_bytes + manager.memory.pool_bytes


def test_progress_is_told_after_every_graph() -> None:
    told: list[tuple[int, int]] = []
    EncoderCudaGraphManager(FakeEncoder(), CPU, settings()).capture(lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_the_start_is_logged_with_what_was_captured(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="foveate.graphs.manager"):
        captured(FakeEncoder(), settings())
    assert [record.getMessage() for record in caplog.records] == [
        "captured 3 encoder graphs (eager), 4 to 32 tokens, 0 switched off; buffers 0.0 MB, graphs 0.0 MB; fixed costs"
    ]

"""What the encoder graphs promise, on a small encoder that is not LFM2-VL."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from foveate.graphs import EncoderCudaGraphManager, OutputRows, Plan, PlannedRun

from .checks import MANY, captured, error, joined, poison, rounding, same_bits
from .fake_encoder import BUDGETS, OUTPUT_WIDTH, FakeEncoder, FakeVideoEncoder, RowBatch, settings

Manager = EncoderCudaGraphManager[RowBatch]

TILE = st.integers(1, 20) | st.integers(30, 40)
"""Tokens of a tile: from below the smallest that the budgets count on to more than any of them holds."""
ITEM = st.lists(TILE, min_size=1, max_size=5)
ITEMS = st.lists(ITEM, min_size=1, max_size=40)


@pytest.fixture(scope="module")
def manager() -> Manager:
    return captured(FakeEncoder(), settings())


def batch_of(items: list[list[int]], seed: int) -> RowBatch:
    return RowBatch.of(*items, seed=seed)


@MANY
@given(items=ITEMS, others=ITEMS)
def test_1a_the_same_batch_has_the_same_bits_whatever_ran_before_and_whatever_lies_in_the_buffers(
    manager: Manager, items: list[list[int]], others: list[list[int]]
) -> None:
    batch = batch_of(items, 1)
    first = manager.execute(batch)
    manager.execute(batch_of(others, 2))
    poison(manager)
    assert same_bits(manager.execute(batch), first)


@MANY
@given(tiles=st.lists(st.integers(1, 16), min_size=1, max_size=8).filter(lambda tiles: sum(tiles) <= BUDGETS[-1]))
def test_1b_a_replay_has_the_bits_of_the_same_kernels_on_buffers_padded_by_hand(
    manager: Manager, tiles: list[int]
) -> None:
    batch = RowBatch.of(tiles)
    budget = manager.plan(batch).runs[0].budget
    assert budget is not None
    part = FakeEncoder().select_encoder_cudagraph_items(batch, manager.plan(batch).runs[0].tiles)
    rows = torch.full((2 * budget, 3), torch.nan)
    rows[: part.rows.shape[0]] = part.rows
    lengths = torch.zeros(max(1, budget // 4), dtype=torch.int64)
    lengths[: len(part.tiles)] = 2 * torch.tensor(part.tiles)
    by_hand = FakeEncoder().encoder_cudagraph_forward({"rows": rows, "lengths": lengths})[: part.tokens]
    assert same_bits([joined(manager.execute(batch))[: part.tokens]], [by_hand])


@MANY
@given(items=ITEMS, seed=st.integers(0, 99))
def test_1c_any_batch_agrees_with_plain_torch_within_twice_the_error_of_plain_torch(
    manager: Manager, items: list[list[int]], seed: int
) -> None:
    batch = batch_of(items, seed)
    exact = exact_features(batch)
    plain = error(FakeEncoder().encoder_eager_forward(batch), exact)
    assert error(joined(manager.execute(batch)), exact) <= 2 * plain + rounding(exact, torch.float32)


def exact_features(batch: RowBatch) -> Tensor:
    return FakeEncoder(FakeEncoder().weight.double()).encoder_eager_forward(batch)


@MANY
@given(items=ITEMS)
def test_3_every_item_comes_back_in_order_with_as_many_rows_as_it_has_tokens(
    manager: Manager, items: list[list[int]]
) -> None:
    batch = batch_of(items, 3)
    features = manager.execute(batch)
    assert [len(rows) for rows in features] == [sum(item) for item in items]
    assert torch.allclose(joined(features), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


@MANY
@given(items=ITEMS, seed=st.integers(0, 99))
def test_rows_are_scattered_to_where_the_caller_wants_them_and_no_other_row_is_touched(
    manager: Manager, items: list[list[int]], seed: int
) -> None:
    batch = batch_of(items, seed)
    expected = joined(manager.execute(batch))
    embeddings = torch.full((batch.tokens + 7, OUTPUT_WIDTH), 9.0)
    rows = torch.randperm(batch.tokens + 7, generator=torch.Generator().manual_seed(seed))
    taken, left = rows[: batch.tokens], rows[batch.tokens :]
    assert manager.execute(batch, OutputRows(embeddings, taken)) == []
    assert torch.equal(embeddings[taken], expected)
    assert (embeddings[left] == 9.0).all()


def test_results_are_converted_to_the_type_of_the_callers_rows(manager: Manager) -> None:
    batch = RowBatch.of([5, 9])
    embeddings = torch.zeros(14, OUTPUT_WIDTH, dtype=torch.bfloat16)
    manager.execute(batch, OutputRows(embeddings, torch.arange(14)))
    assert torch.equal(embeddings, joined(manager.execute(batch)).bfloat16())


@pytest.mark.parametrize("tokens", [3, 4, 5, 11, 12, 13, 31, 32, 33])
def test_a_budget_filled_exactly_and_one_token_more_or_less_are_right(manager: Manager, tokens: int) -> None:
    batch = RowBatch.of([tokens])
    run = manager.plan(batch).runs[0]
    assert run.budget == next((budget for budget in BUDGETS if budget >= tokens), None)
    assert torch.allclose(manager.execute(batch)[0], FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


@pytest.mark.parametrize("tiles", [7, 8, 9, 16, 17])
def test_tile_slots_filled_exactly_and_one_tile_more_or_less_are_right(manager: Manager, tiles: int) -> None:
    batch = RowBatch.of(*[[1]] * tiles)
    plan = manager.plan(batch)
    assert all(len(run.tiles) <= 8 for run in plan.runs)
    assert plan.eager_runs == ()
    assert torch.allclose(joined(manager.execute(batch)), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


def test_oversize_and_normal_tiles_of_one_item_come_back_as_one_tensor(manager: Manager) -> None:
    batch = RowBatch.of([8, 40, 8], [40], [4])
    plan = manager.plan(batch)
    assert [run.reason for run in plan.runs] == [None, "tile_exceeds_every_budget"] * 2 + [None]
    features = manager.execute(batch)
    assert [len(rows) for rows in features] == [56, 40, 4]
    assert torch.allclose(joined(features), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


def test_a_batch_without_items_gives_nothing(manager: Manager) -> None:
    assert manager.execute(RowBatch.of()) == []


def test_an_item_without_tiles_gives_no_rows(manager: Manager) -> None:
    assert [len(rows) for rows in manager.execute(RowBatch.of([4], [], [5]))] == [4, 0, 5]


def test_rows_of_another_type_are_converted_on_the_way_into_the_buffers(manager: Manager) -> None:
    batch = RowBatch.of([5, 9])
    double = RowBatch(batch.rows.double(), batch.tiles, batch.tiles_per_item)
    assert same_bits(manager.execute(double), manager.execute(batch))


def test_before_the_graphs_are_captured_everything_runs_eagerly_and_says_so() -> None:
    manager = EncoderCudaGraphManager(FakeEncoder(), torch.device("cpu"), settings())
    batch = RowBatch.of([5, 9])
    assert torch.equal(manager.execute(batch)[0], FakeEncoder().encoder_eager_forward(batch))
    assert manager.stats.eager_runs == {"graphs_switched_off": 1}


def test_graphs_are_captured_once(manager: Manager) -> None:
    with pytest.raises(ValueError, match="captured already"):
        manager.capture()


def test_a_modality_that_was_not_captured_runs_eagerly_and_is_counted() -> None:
    manager = captured(FakeEncoder(), settings())
    batch = RowBatch.of([5, 9], modality="audio")
    assert torch.equal(manager.execute(batch)[0], FakeEncoder().encoder_eager_forward(batch))
    assert manager.stats.eager_tiles_by_reason == {"modality_not_captured": 2}


@pytest.mark.parametrize("frames", [1, 3, None])
def test_videos_are_packed_by_their_frames_too(frames: int | None) -> None:
    manager = captured(FakeVideoEncoder(), settings(frames=frames))
    batch = RowBatch.of([4] * 4, [5] * 3, modality="video")
    features = manager.execute(batch)
    assert max(len(run.tiles) for run in manager.plan(batch).runs) == (frames or 7)
    assert torch.allclose(joined(features), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


def test_without_room_for_frames_videos_run_eagerly_and_images_still_replay() -> None:
    manager = captured(FakeVideoEncoder(), settings(frames=0))
    manager.execute(RowBatch.of([4, 4], modality="video"))
    manager.execute(RowBatch.of([4, 4]))
    assert manager.stats.eager_tiles_by_reason == {"tile_exceeds_every_budget": 2}
    assert manager.stats.replayed_tiles == 2


@pytest.mark.parametrize(
    ("rows", "width"), [(13, OUTPUT_WIDTH), (15, OUTPUT_WIDTH), (14, OUTPUT_WIDTH + 1), (14, OUTPUT_WIDTH - 1)]
)
def test_rows_of_the_caller_that_do_not_fit_are_refused_before_anything_is_written(
    manager: Manager, rows: int, width: int
) -> None:
    embeddings = torch.zeros(20, width)
    with pytest.raises(ValueError, match=r"the batch gives 14 rows of 4, but out has"):
        manager.execute(RowBatch.of([5, 9]), OutputRows(embeddings, torch.arange(rows)))
    assert (embeddings == 0).all()


def test_the_plan_of_another_batch_is_refused(manager: Manager) -> None:
    other = manager.plan(RowBatch.of([5, 8]))
    with pytest.raises(ValueError, match="the plan is for 2 tiles of 13 tokens, the batch has 2 of 14"):
        manager.execute(RowBatch.of([5, 9]), plan=other)


def test_a_plan_of_ones_own_is_followed_and_gives_the_same_features(manager: Manager) -> None:
    batch = RowBatch.of([5, 7])
    apart = Plan((PlannedRun(0, 1, 5, 10, 1, 12), PlannedRun(1, 2, 7, 14, 1, 32)))
    features: list[Any] = manager.execute(batch, plan=apart)
    assert torch.allclose(features[0], FakeEncoder().encoder_eager_forward(batch), atol=1e-5)


@pytest.mark.parametrize(
    ("embeddings", "rows"),
    [
        (torch.zeros(20, OUTPUT_WIDTH, dtype=torch.int64), torch.arange(14)),
        (torch.zeros(20, OUTPUT_WIDTH), torch.arange(14, dtype=torch.int32)),
        (torch.zeros(20, OUTPUT_WIDTH), torch.arange(14.0)),
    ],
)
def test_rows_of_a_wrong_type_are_refused_before_anything_is_written(
    manager: Manager, embeddings: Tensor, rows: Tensor
) -> None:
    with pytest.raises(ValueError, match="rows must be int64 and embeddings"):
        manager.execute(RowBatch.of([5, 9]), OutputRows(embeddings, rows))
    assert not embeddings.any()


def test_a_plan_for_the_same_tiles_in_another_order_is_refused(manager: Manager) -> None:
    plan = manager.plan(RowBatch.of([5, 40, 9]))
    with pytest.raises(ValueError, match="plan this batch"):
        manager.execute(RowBatch.of([40, 5, 9]), plan=plan)


def test_a_plan_of_a_manager_with_other_budgets_is_refused(manager: Manager) -> None:
    other = captured(FakeEncoder(), settings(17))
    with pytest.raises(ValueError, match="there is no graph; plan with this manager"):
        manager.execute(RowBatch.of([14]), plan=other.plan(RowBatch.of([14])))

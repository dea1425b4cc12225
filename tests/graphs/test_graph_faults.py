"""Faults planted into a model, a backend, a plan or the manager: each is found, and what is left still works."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from foveate.graphs import (
    EncoderCudaGraphConfig,
    EncoderCudaGraphManager,
    GraphCheckError,
    Plan,
    PlannedRun,
    TileSpec,
    Work,
)

from .checks import CPU, RecordingBackend, captured, joined
from .fake_encoder import BUDGETS, FakeEncoder, OneBadGraph, RowBatch, settings


class StaleBackend:
    """Planted fault, stale buffers: a replay gives what the capture gave, whatever lies in the input buffers."""

    name = "stale"

    def __init__(self) -> None:
        self.output = torch.empty(0)

    def capture(self, work: Work) -> Work:
        work()
        kept = self.output.clone()

        def replay() -> None:
            self.output.copy_(kept)

        return replay


class DriftingBackend:
    """Planted fault: what runs is not quite what was captured, by less than rounding could explain away."""

    name = "drifting"

    def __init__(self) -> None:
        self.output = torch.empty(0)

    def capture(self, work: Work) -> Work:
        def replay() -> None:
            work()
            self.output.nextafter_(torch.ones(()))

        return replay


@dataclass(frozen=True)
class DriftingEncoder(FakeEncoder):
    """Planted fault: a forward reads something that is in no buffer, here how often it has run."""

    runs: list[int] = field(default_factory=list)

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        self.runs.append(1)
        return super().encoder_cudagraph_forward(buffers) * (1 + len(self.runs) * torch.finfo(torch.float32).eps)


class StaleShapes(FakeEncoder):
    """Planted fault, stale buffers: slots that a batch leaves free keep the lengths of the batch before."""

    def get_encoder_cudagraph_config(self) -> EncoderCudaGraphConfig:
        config = super().get_encoder_cudagraph_config()
        return replace(config, buffers=(config.buffers[0], replace(config.buffers[1], padding="keep")))


class UnwrittenPadding(FakeEncoder):
    """Planted fault, unwritten padding: rows of no tile keep whatever the memory held."""

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        output = super().encoder_cudagraph_forward(buffers)
        _, is_real = self.slots(buffers)
        leftover = buffers["rows"].sum(-1).view(-1, 2).sum(-1)
        return torch.where(is_real[::2, None], output, leftover[:, None])


class PaddingIsRead(FakeEncoder):
    """Planted fault, unwritten padding: the rows behind the last tile are averaged with that of the last slot."""

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        padding = buffers["rows"].mean() * 0
        return super().encoder_cudagraph_forward(buffers) + padding


class WrongBound(FakeEncoder):
    """Planted fault, wrong bound: only the first rows of a long tile are averaged."""

    bound = 20

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        ends = buffers["lengths"].cumsum(0)
        slot, _ = self.slots(buffers)
        place = torch.arange(buffers["rows"].shape[0]) - (ends - buffers["lengths"])[slot]
        rows = torch.where((place < self.bound)[:, None], buffers["rows"], 0)
        return super().encoder_cudagraph_forward({**buffers, "rows": rows})


class WrongSlot(FakeEncoder):
    """Planted fault, wrong bound: no more than 4 tile slots are told apart."""

    def slots(self, buffers: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        slot, is_real = super().slots(buffers)
        return slot.clamp(max=3), is_real


class LostRow(FakeEncoder):
    """Planted fault, wrong bound: the last token of the last tile is that of another."""

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        output = super().encoder_cudagraph_forward(buffers)
        last = int(buffers["lengths"].sum()) // 2 - 1
        return output.index_copy(0, torch.tensor([last]), output[:1])


@dataclass(frozen=True)
class WrongEagerRows(FakeEncoder):
    """Planted fault, overflow: for batches of some size, the eager forward gives a row more than the item specs say."""

    from_tokens: int = 0

    def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
        output = super().encoder_eager_forward(batch)
        return torch.cat([output, output[:1]]) if batch.tokens >= self.from_tokens else output


@pytest.mark.parametrize("budget", [4, 5, 12, 16, 32])
@pytest.mark.parametrize(
    ("backend_class", "finding"),
    [(StaleBackend, ""), (DriftingBackend, "a replay differs from the same kernels launched one by one")],
)
def test_a_graph_that_replays_something_else_is_found_at_every_budget(
    backend_class: type[StaleBackend | DriftingBackend], finding: str, budget: int
) -> None:
    backend = backend_class()
    manager = EncoderCudaGraphManager(FakeEncoder(), CPU, settings(budget), backend=backend, strict=True)
    backend.output = manager._buffers.output(budget)
    with pytest.raises(GraphCheckError, match=f"graph of {budget} tokens is switched off: .*{finding}"):
        manager.capture()


@pytest.mark.parametrize(
    ("model", "finding"),
    [
        (StaleShapes, "rows that belong to no tile are not zeros|the same tiles gave other bits"),
        (UnwrittenPadding, "rows that belong to no tile are not zeros"),
        (PaddingIsRead, "rows that belong to no tile are not zeros|differs from the unpadded forward"),
        (WrongBound, "a tile differs from the unpadded forward"),
        (WrongSlot, "a tile differs from the unpadded forward"),
        (LostRow, "a tile differs from the unpadded forward"),
        (DriftingEncoder, "the same tiles gave other bits after a larger batch"),
        (WrongEagerRows, "the eager forward gives 17 rows, the item specs say 16"),
    ],
)
def test_a_planted_fault_of_the_model_is_found_before_anything_is_served(
    model: type[FakeEncoder], finding: str
) -> None:
    with pytest.raises(GraphCheckError, match=finding):
        captured(model(), settings(32))


@pytest.mark.parametrize("budget", [5, 6, 7])
def test_padding_is_checked_in_budgets_that_are_less_than_two_of_the_smallest_tiles(budget: int) -> None:
    with pytest.raises(GraphCheckError, match="rows that belong to no tile are not zeros"):
        captured(UnwrittenPadding(), settings(budget))


def test_a_model_whose_features_are_all_zeros_is_no_fault() -> None:
    captured(FakeEncoder(torch.zeros(9, 4)), settings())


def test_a_graph_at_fault_is_logged_as_an_error_counted_and_never_planned_or_replayed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = RecordingBackend()
    with caplog.at_level(logging.ERROR):
        manager = captured(OneBadGraph(), settings(), backend=backend, strict=False)
    assert [record.getMessage()[:53] for record in caplog.records] == [
        "the encoder graph of 12 tokens is switched off: rows "
    ]
    assert [report.fault is None for report in manager.reports] == [True, False, True]
    assert manager.stats.graphs_switched_off == 1
    backend.replays.clear()
    batch = RowBatch.of([4], [8], [4, 4], [12], seed=5)
    assert torch.allclose(joined(manager.execute(batch)), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)
    assert 12 not in manager.stats.replays
    assert BUDGETS[::-1].index(12) not in backend.replays


def test_a_tile_that_only_a_graph_at_fault_could_hold_runs_eagerly() -> None:
    manager = captured(OneBadGraph(), settings(4, 12), strict=False)
    batch = RowBatch.of([9], [4])
    assert torch.allclose(joined(manager.execute(batch)), FakeEncoder().encoder_eager_forward(batch), atol=1e-5)
    assert manager.stats.eager_tiles_by_reason == {"tile_exceeds_every_budget": 1}


def test_when_all_graphs_are_at_fault_everything_runs_eagerly_with_that_reason() -> None:
    manager = captured(UnwrittenPadding(), settings(8, 12, 32), strict=False)
    batch = RowBatch.of([4], [8, 8])
    assert torch.equal(joined(manager.execute(batch)), FakeEncoder().encoder_eager_forward(batch))
    assert manager.stats.graphs_switched_off == 3
    assert manager.stats.eager_tiles_by_reason == {"graphs_switched_off": 3}
    assert manager.stats.replays == {}


class AliasedOutput(EncoderCudaGraphManager[RowBatch]):
    """Planted fault, aliased output: results are views of the output buffer."""

    def _fresh(self, tokens: int) -> Tensor:
        return self._buffers.output(tokens)


def keeps_its_results(manager: EncoderCudaGraphManager[RowBatch]) -> bool:
    """Whether a result is still the same after the next one."""
    first = manager.execute(RowBatch.of([8], seed=1))[0]
    kept = first.clone()
    manager.execute(RowBatch.of([8], seed=2))
    return torch.equal(first, kept)


def test_a_result_that_aliases_a_buffer_is_found_by_keeping_two() -> None:
    aliased = AliasedOutput(FakeEncoder(), CPU, settings(), strict=True)
    aliased.capture()
    assert not keeps_its_results(aliased)
    assert keeps_its_results(captured(FakeEncoder(), settings()))


def test_a_plan_that_overflows_tile_slots_is_refused_instead_of_writing_beyond_them() -> None:
    manager = captured(FakeEncoder(), settings())
    batch = RowBatch.of([1] * 9)
    with pytest.raises(ValueError, match="9 rows for the buffer 'lengths'; the graph of 32 tokens holds 8"):
        manager.execute(batch, plan=Plan((PlannedRun(0, 9, 9, 18, 1, 32),)))


class UnderstatedRows(FakeEncoder):
    """Planted fault, overflow: tiles have more input rows than the item specs say."""

    def tile_spec(self, tokens: int) -> TileSpec:
        return TileSpec(tokens, tokens)


class ThirstyEncoder(FakeEncoder):
    """No fault: a token takes three input rows, and graphs hold two for each token."""

    def tile_spec(self, tokens: int) -> TileSpec:
        return TileSpec(3 * tokens, tokens)


def test_a_model_that_gives_other_rows_than_it_says_is_told_so_instead_of_shifting_the_rest() -> None:
    manager = captured(UnderstatedRows(), settings())
    with pytest.raises(ValueError, match="16 rows for the buffer 'rows', its item specs say 8"):
        manager.execute(RowBatch.of([8]))


def test_an_eager_forward_that_gives_other_rows_than_it_says_is_told_so() -> None:
    manager = captured(WrongEagerRows(from_tokens=33), settings())
    with pytest.raises(ValueError, match="41 rows, its item specs say 40"):
        manager.execute(RowBatch.of([40]))


def test_input_rows_are_an_axis_of_the_plan() -> None:
    manager = captured(ThirstyEncoder(), settings())
    runs = manager.plan(RowBatch.of([10], [10], [10])).runs
    assert [(run.input_rows, run.budget) for run in runs] == [(30, 32), (60, 32)]


class BrittleEncoder(FakeEncoder):
    """Raises for items of 5 tokens, wherever it meets them."""

    def prepare_encoder_cudagraph_replay_buffers(self, batch: RowBatch) -> Mapping[str, Tensor]:
        if 5 in batch.tiles:
            raise OSError("the rows cannot be read")
        return super().prepare_encoder_cudagraph_replay_buffers(batch)

    def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
        if 45 in batch.tiles:
            raise MemoryError("too many rows")
        return super().encoder_eager_forward(batch)


@pytest.mark.parametrize(("items", "raised"), [([[8], [5]], OSError), ([[8], [45], [8]], MemoryError)])
def test_an_exception_inside_a_run_reaches_the_caller_and_leaves_the_manager_usable(
    items: Sequence[Sequence[int]], raised: type[Exception]
) -> None:
    manager = captured(BrittleEncoder(), settings())
    good = RowBatch.of([8], [12, 4])
    before = manager.execute(good)
    counted = copy.deepcopy(manager.stats)
    with pytest.raises(raised):
        manager.execute(RowBatch.of(*items))
    assert manager.stats == counted
    assert not manager._lock.locked()
    assert torch.equal(joined(manager.execute(good)), joined(before))

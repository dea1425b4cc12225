"""What the planner chooses between: measured once, kept on disk, and never fatal when that fails."""

import json
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from foveate.graphs import CostStore, FixedCosts, MeasuredCosts, Plan
from foveate.graphs.cost_measuring import CostMeasurement, eager_sizes, is_disturbed

from .checks import MANY, captured
from .fake_encoder import BUDGETS, LARGEST, SMALLEST, STEP, FakeEncoder, RowBatch, settings

KEY = {"card": "H200", "torch": "2.11"}
COSTS = MeasuredCosts({4: 1.5, 12: 2.25, 32: 4.0}, ((4, 8.0), (32, 8.5), (64, 17.0)))
POINTS = st.dictionaries(st.integers(1, 500), st.floats(0.01, 100), min_size=1, max_size=5).map(
    lambda points: tuple(sorted(points.items()))
)


@MANY
@given(points=POINTS)
def test_eager_cost_goes_through_what_was_measured_and_never_falls_beyond_it(
    points: tuple[tuple[int, float], ...],
) -> None:
    rising = tuple((tokens, max(ms for _, ms in points[: index + 1])) for index, (tokens, ms) in enumerate(points))
    costs = MeasuredCosts({}, rising)
    assert all(costs.eager_ms(tokens) == pytest.approx(ms) for tokens, ms in rising)
    assert all(costs.eager_ms(a) <= costs.eager_ms(b) * (1 + 1e-9) for a, b in pairwise(range(1, 1000, 7)))


def test_eager_cost_is_flat_where_launches_bound_it_and_rises_by_the_last_slope_beyond_what_was_measured() -> None:
    assert [COSTS.eager_ms(tokens) for tokens in (1, 4, 18, 32, 48, 64, 128)] == [8, 8, 8.25, 8.5, 12.75, 17, 34]


def test_eager_cost_goes_through_times_that_fall_and_never_falls_beyond_them() -> None:
    costs = MeasuredCosts({}, ((64, 8.0), (1024, 5.0), (2048, 6.0), (4096, 4.0)))
    assert [costs.eager_ms(tokens) for tokens in (64, 544, 1024, 1536, 2048, 4096, 8192)] == [8, 6.5, 5, 5.5, 6, 4, 4]


def test_without_a_measurement_a_replay_costs_its_rows_and_a_fixed_part_and_eager_is_never_cheaper() -> None:
    assert FixedCosts(2.0, 0.5).replay_ms(8) == 6.0
    assert FixedCosts().eager_ms(1) == inf


@pytest.mark.parametrize("points", [(), ((8, 1.0), (4, 2.0)), ((4, 1.0), (4, 2.0)), ((0, 1.0),)])
def test_eager_sizes_that_do_not_ascend_are_refused(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        MeasuredCosts({4: 1.0}, points)


@pytest.mark.parametrize("ms", [0.0, -1.0, inf, float("nan")])
def test_times_that_are_no_times_are_refused(ms: float) -> None:
    for replays, eager in (({4: ms}, ((4, 1.0),)), ({4: 1.0}, ((4, ms),))):
        with pytest.raises(ValueError, match="not a positive number"):
            MeasuredCosts(replays, eager)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    CostStore(tmp_path / "new" / "folder", KEY).save(COSTS)
    assert CostStore(tmp_path / "new" / "folder", KEY).load(BUDGETS) == COSTS
    assert [path.suffix for path in (tmp_path / "new" / "folder").iterdir()] == [".json"]


@pytest.mark.parametrize(
    ("key", "budgets"), [({**KEY, "card": "B200"}, BUDGETS), ({**KEY, "driver": "581"}, BUDGETS), (KEY, (4, 12))]
)
def test_costs_of_another_card_driver_or_set_of_graphs_are_not_taken(
    tmp_path: Path, key: dict[str, str], budgets: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    CostStore(tmp_path, KEY).save(COSTS)
    assert CostStore(tmp_path, key).load(budgets) is None
    assert caplog.records == []


def test_a_refreshing_store_ignores_what_is_kept_and_replaces_it(tmp_path: Path) -> None:
    CostStore(tmp_path, KEY).save(COSTS)
    store = CostStore(tmp_path, KEY, refresh=True)
    assert store.load(BUDGETS) is None
    store.save(MeasuredCosts({4: 9.0, 12: 9.0, 32: 9.0}, COSTS.eager))
    kept = CostStore(tmp_path, KEY).load(BUDGETS)
    assert kept is not None
    assert kept.replay_ms(4) == 9.0


def record(**changes: object) -> str:
    eager = [[4, 8.0]]
    key = {**KEY, "budgets": "4 12 32"}
    return json.dumps({"key": key, "replay_ms": {"4": 1, "12": 2, "32": 3}, "eager_ms": eager, **changes})


def test_the_record_that_the_next_test_damages_is_itself_a_good_one(tmp_path: Path) -> None:
    store = CostStore(tmp_path, KEY)
    store.path(BUDGETS).write_text(record())
    assert store.load(BUDGETS) == MeasuredCosts({4: 1.0, 12: 2.0, 32: 3.0}, ((4, 8.0),))


DAMAGED = {
    "empty": "",
    "cut off": record()[:-20],
    "not JSON": "\x00\x01",
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "deeply nested": "[" * 100_000,
    "another key": record(key={"card": "another"}),
    "a budget too few": record(replay_ms={"4": 1, "12": 2}),
    "a time of zero": record(replay_ms={"4": 0, "12": 2, "32": 3}),
    "a time that is no number": record(replay_ms={"4": "soon", "12": 2, "32": 3}),
    "an infinite time": record(replay_ms={"4": 1, "12": 2, "32": 3}, eager_ms=[[4, inf]]),
    "no eager time": record(eager_ms=[]),
    "eager times of another form": record(eager_ms=4),
    "eager triples": record(eager_ms=[[4, 8.0, 1.0]]),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_one_warning_and_is_replaced_by_a_new_measurement(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = CostStore(tmp_path, KEY)
    store.path(BUDGETS).write_text(text)
    manager = captured(FakeEncoder(), settings(), cost_store=store)
    assert manager.start_up.cost_source == "measured"
    assert [message.levelno for message in caplog.records] == [logging.WARNING]
    assert str(store.path(BUDGETS)) in caplog.text
    assert CostStore(tmp_path, KEY).load(BUDGETS) is not None


def test_bytes_that_are_no_text_are_a_damaged_file_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CostStore(tmp_path, KEY)
    store.path(BUDGETS).write_bytes(b"\xff\xfe\xff")
    assert store.load(BUDGETS) is None
    assert len(caplog.records) == 1


def test_a_folder_that_cannot_be_written_is_one_warning_and_the_start_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    manager = captured(FakeEncoder(), settings(), cost_store=CostStore(blocked / "costs", KEY))
    assert manager.start_up.cost_source == "measured"
    assert [message.levelno for message in caplog.records] == [logging.WARNING]
    assert manager.execute(RowBatch.of([4]))[0].shape == (4, 4)


def test_a_place_taken_by_a_folder_is_one_warning_and_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CostStore(tmp_path, KEY)
    store.path(BUDGETS).mkdir()
    captured(FakeEncoder(), settings(), cost_store=store)
    assert len(caplog.records) == 1
    assert list(tmp_path.iterdir()) == [store.path(BUDGETS)]


def test_many_writers_and_readers_at_once_never_see_half_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CostStore(tmp_path, KEY).save(COSTS)

    def write_and_read(number: int) -> MeasuredCosts | None:
        store = CostStore(tmp_path, KEY)
        store.save(MeasuredCosts({**COSTS.replays, 4: 1.0 + number}, COSTS.eager))
        return store.load(BUDGETS)

    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(write_and_read, range(64)))
    assert all(costs is not None and costs.replay_ms(32) == 4.0 for costs in read)
    assert caplog.records == []
    assert len(list(tmp_path.iterdir())) == 1


@dataclass(frozen=True)
class CountingEncoder(FakeEncoder):
    """Remembers the tokens of every eager run."""

    eager: list[int] = field(default_factory=list)

    def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
        self.eager.append(batch.tokens)
        return super().encoder_eager_forward(batch)


def test_the_first_start_measures_every_graph_and_some_eager_sizes_and_the_next_loads_them(tmp_path: Path) -> None:
    first, second = CountingEncoder(), CountingEncoder()
    measuring = captured(first, settings(), cost_store=CostStore(tmp_path, KEY))
    loading = captured(second, settings(), cost_store=CostStore(tmp_path, KEY))
    sources = measuring.start_up.cost_source, loading.start_up.cost_source
    assert sources == ("measured", "kept")
    assert isinstance(measuring.costs, MeasuredCosts)
    assert set(measuring.costs.replays) == set(BUDGETS)
    assert [tokens for tokens, _ in measuring.costs.eager] == [4, 32, 64, 128]
    measured = Counter(first.eager) - Counter(second.eager)
    assert set(measured) == {4, 32, 64, 128}
    assert min(measured.values()) >= 3


def test_replays_and_eager_runs_of_like_sizes_are_measured_next_to_each_other(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    manager = captured(encoder, settings(), cost_store=CostStore(tmp_path, KEY))
    order: list[tuple[str, int]] = []

    def encode(batch: RowBatch, plan: Plan) -> None:
        order.append(("replay" if plan.replays else "eager", batch.tokens))

    measurement = CostMeasurement(encoder, torch.device("cpu"), encode, manager._config.inputs_per_token)
    measurement.measure([report.capacity for report in manager.reports])
    in_turn = order[4 : 4 + len(BUDGETS) + 4]  # behind the runs that warm up
    names, sizes = zip(*in_turn, strict=True)
    assert sizes == (128, 64, 32, 32, 12, 4, 4)
    assert names == ("eager", "eager", "replay", "eager", "replay", "replay", "eager")


def test_costs_that_other_work_disturbed_are_used_but_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measure = CostMeasurement.measure
    monkeypatch.setattr(CostMeasurement, "measure", lambda self, usable: (measure(self, usable)[0], True))
    managers = [captured(FakeEncoder(), settings(), cost_store=CostStore(tmp_path, KEY)) for _ in range(2)]
    assert [each.start_up.cost_source for each in managers] == ["measured", "measured"]
    assert isinstance(managers[0].costs, MeasuredCosts)
    assert list(tmp_path.iterdir()) == []
    assert "other work on cpu disturbed" in caplog.text


def test_times_that_jump_are_told_from_times_that_shake() -> None:
    steady, shaky, jumping = [1.0, 1.02, 1.01], [2.0, 2.2, 2.1], [1.0, 1.6, 2.9]
    assert not is_disturbed([steady, shaky, jumping])
    assert is_disturbed([steady, jumping, jumping])


def test_measuring_is_not_counted_as_use(tmp_path: Path) -> None:
    stats = captured(FakeEncoder(), settings(), cost_store=CostStore(tmp_path, KEY)).stats
    assert (stats.batches, stats.tiles) == (0, 0)


def test_a_graph_that_is_switched_off_is_not_measured(tmp_path: Path) -> None:
    class AlwaysWrong(FakeEncoder):
        def encoder_cudagraph_forward(self, buffers):  # type: ignore[no-untyped-def]
            return super().encoder_cudagraph_forward(buffers) + 1

    manager = captured(AlwaysWrong(), settings(), cost_store=CostStore(tmp_path, KEY), strict=False)
    assert manager.start_up.cost_source == "fixed"
    assert list(tmp_path.iterdir()) == []


def test_given_costs_are_used_as_they_are_and_nothing_is_measured(tmp_path: Path) -> None:
    manager = captured(FakeEncoder(), settings(), costs=COSTS, cost_store=CostStore(tmp_path, KEY))
    assert (manager.costs, manager.start_up.cost_source) == (COSTS, "given")
    assert list(tmp_path.iterdir()) == []


def test_a_batch_runs_eagerly_where_that_is_cheaper_and_the_reason_is_counted() -> None:
    manager = captured(FakeEncoder(), settings(), costs=MeasuredCosts({4: 9.0, 12: 9.0, 32: 9.0}, ((4, 1.0),)))
    batch = RowBatch.of([4, 16], [40], [12])
    features = manager.execute(batch)
    assert manager.stats.eager_runs == {"cheaper": 1}
    assert manager.stats.eager_tiles_by_reason == {"cheaper": 4}
    assert [len(rows) for rows in features] == [20, 40, 12]


def test_eager_runs_are_measured_from_the_smallest_tile_to_four_times_the_largest_graph() -> None:
    span = FakeEncoder().get_encoder_cudagraph_budget_range()
    assert (SMALLEST, STEP, LARGEST) == (4, 16, 48)
    assert eager_sizes(span, 200) == (4, 64, 132, 200, 400, 800)
    assert eager_sizes(span, 32) == (4, 32, 64, 128)

"""What went wrong with encoder graphs elsewhere, by its number in docs/encoder-graphs.md, where a CPU can show it.

The others are in tests/gpu/test_gpu_encoder_graphs.py, under the same numbers.
"""

import copy
import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.errors import ImageSizeError
from foveate.graphs import EncoderCudaGraphManager, FixedCosts, GraphCapacity, Planner, Work
from foveate.graphs.budgets import automatic_budgets
from foveate.kernels.attention import attention
from foveate.models.lfm2_vl import vision
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape, plan_tiles
from foveate.vlm import VLM

from .checks import RecordingBackend, captured, error, joined, poison, same_bits
from .fake_encoder import BUDGETS, LARGEST, SMALLEST, FakeEncoder, OneBadGraph, RowBatch, settings


def batch_of(*shapes: tuple[int, int], seed: int = 0) -> ImageBatch:
    tiles = tuple(TileShape(*shape) for shape in shapes)
    rows = sum(tile.num_patches for tile in tiles)
    patches = torch.rand(rows, 768, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return ImageBatch(patches, tiles, (1,) * len(tiles))


SMALL, LARGE = batch_of((16, 16), seed=1), batch_of(*[(32, 32)] * 5, (24, 20), seed=2)


def test_pitfall_1_01_rows_of_no_tile_are_written_and_nan_that_lies_there_reaches_no_result(
    graphs: GraphImageEncoder,
) -> None:
    results = []
    for batch in (SMALL, LARGE, SMALL):
        poison(graphs.manager)
        results.append(graphs.encode(batch).features)
    assert all(rows.isfinite().all() for features in results for rows in features)
    assert same_bits(results[0], results[2])
    for budget in (64, 128, 320):
        assert (padding_after(graphs, budget) == 0).all()


def padding_after(graphs: GraphImageEncoder, budget: int) -> Tensor:
    """Replay one tile of 2 tokens in a poisoned graph of `budget` tokens; return the output rows of no tile."""
    manager, tiny = graphs.manager, batch_of((2, 4))
    graph = manager._graphs[budget]
    poison(manager)
    manager._buffers.load(graph.capacity, {"patches": tiny.patches, "tile_shapes": tiny.tile_shapes()})
    with torch.no_grad():
        graph.replay()
    return manager._buffers.output(budget)[2:]


def test_pitfall_1_02_no_buffer_that_a_graph_recorded_ever_moves_or_is_regrown(graphs: GraphImageEncoder) -> None:
    before = addresses(graphs.manager)
    first = graphs.encode(SMALL).features
    graphs.encode(LARGE)
    graphs.encode(batch_of(*[(8, 32)] * 40))
    assert same_bits(graphs.encode(SMALL).features, first)
    assert addresses(graphs.manager) == before


def addresses(manager: EncoderCudaGraphManager[Any]) -> list[int]:
    buffers = [
        tensor
        for graph in manager._graphs.values()
        for tensor in (
            *manager._buffers.inputs(graph.capacity).values(),
            manager._buffers.output(graph.capacity.tokens),
        )
    ]
    return [buffer.data_ptr() for buffer in buffers]


@pytest.mark.parametrize("lengths", [(4, 6, 8), (5, 5, 8), (6, 6, 6), (18,)])
def test_pitfall_1_03_the_same_total_in_another_segmentation_is_right_in_the_same_graph(
    vlm: VLM, graphs: GraphImageEncoder, lengths: tuple[int, ...]
) -> None:
    batch = batch_of(*[(8, 2 * length) for length in lengths])
    (run,) = graphs.manager.plan(batch).runs
    assert (run.tokens, run.budget) == (72, 320 if len(lengths) > 2 else 128)
    ours, eager = graphs.encode(batch).features, EagerImageEncoder(vlm.model.encoder).encode(batch).features
    assert error(joined(ours), joined(eager)) <= 1e-5 * float(joined(eager).norm())


def test_pitfall_1_04_two_results_of_one_size_are_both_kept(graphs: GraphImageEncoder) -> None:
    first = graphs.encode(SMALL).features
    kept = [rows.clone() for rows in first]
    second = graphs.encode(batch_of((16, 16), seed=9)).features
    assert same_bits(first, kept)
    assert not torch.equal(first[0], second[0])
    buffers = {*addresses(graphs.manager)}
    assert {rows.untyped_storage().data_ptr() for rows in (*first, *second)}.isdisjoint(buffers)


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(2, 4)] * 40, "tile slots: many tiles smaller than the smallest the budgets count on"),
        ([(16, 16)] * 40, "tokens: more than the largest budget holds"),
        ([(32, 32)] * 11 + [(2, 2)] * 7, "both"),
    ],
)
def test_pitfall_1_06_what_exceeds_a_graph_on_any_axis_is_cut_and_every_part_is_counted(
    vlm: VLM, graphs: GraphImageEncoder, shapes: list[tuple[int, int]], axis: str
) -> None:
    batch = batch_of(*shapes)
    tiles_before = graphs.manager.stats.tiles
    encoded = graphs.encode(batch)
    eager = EagerImageEncoder(vlm.model.encoder).encode(batch).features
    assert len(encoded.report.replays) > 1, axis
    assert error(joined(encoded.features), joined(eager)) <= 1e-5 * float(joined(eager).norm())
    assert graphs.manager.stats.tiles == tiles_before + len(shapes)


def test_pitfall_1_06_the_bound_on_items_is_kept_too() -> None:
    manager = captured(FakeEncoder(), settings(items=2))
    assert [run.items for run in manager.plan(RowBatch.of([4, 4], [4], [4, 4], [4], [4])).runs] == [2, 2, 1]


def test_pitfall_1_07_padding_is_paid_for_in_the_plan_so_a_small_batch_never_fills_a_large_graph() -> None:
    budgets = automatic_budgets(FakeEncoder().get_encoder_cudagraph_budget_range())
    planner = Planner([GraphCapacity(tokens, 2 * tokens, tokens // 4, tokens // 4) for tokens in budgets])
    for tokens in range(1, LARGEST + 1):
        plan = planner.plan(FakeEncoder().get_encoder_cudagraph_item_specs(RowBatch.of([tokens])))
        assert [run.budget for run in plan.runs] == [min(budget for budget in budgets if budget >= tokens)]


def test_pitfall_1_07_a_large_batch_takes_several_graphs_where_one_would_cost_more() -> None:
    planner = Planner([GraphCapacity(tokens, 2 * tokens, 512, 512) for tokens in (256, 2048)], FixedCosts(fixed_ms=0.1))
    plan = planner.plan(FakeEncoder().get_encoder_cudagraph_item_specs(RowBatch.of(*[[256]] * 5)))
    assert [run.budget for run in plan.runs] == [256] * 5


def test_pitfall_1_08_attention_is_bounded_by_one_tile_and_not_by_the_budget(
    vlm: VLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds_seen: list[int] = []

    def recording(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
        bounds_seen.append(longest)
        return attention(query, key, value, bounds, longest)

    monkeypatch.setattr(vision, "attention", recording)
    with torch.no_grad():
        vlm.model.encoder(torch.zeros(4 * 2816, 768), torch.zeros(44, 2, dtype=torch.int32))
    assert set(bounds_seen) == {1024}


def test_pitfall_1_09_memory_is_known_before_anything_is_served(graphs: GraphImageEncoder) -> None:
    manager = graphs.manager
    largest = manager._graphs[320].capacity
    held = [*manager._buffers.inputs(largest).values(), manager._buffers.output(320)]
    assert manager.memory.buffer_bytes == sum(tensor.nbytes for tensor in held)
    assert [report.pool_bytes for report in manager.reports] == [0, 0, 0]


def test_pitfall_1_10_graphs_are_captured_at_the_start_alone_and_largest_first() -> None:
    backend = RecordingBackend()
    manager = captured(FakeEncoder(), settings(), backend=backend)
    assert backend.captures == len(BUDGETS)
    assert [report.capacity.tokens for report in manager.reports] == sorted(BUDGETS, reverse=True)
    for seed in range(50):
        manager.execute(RowBatch.of([1 + seed % 40], [1 + seed * 7 % 20] * 3, seed=seed))
    assert backend.captures == len(BUDGETS)


@dataclass(frozen=True)
class HygienicEncoder(FakeEncoder):
    """Remembers what lay in its buffers at every padded forward."""

    seen: list[dict[str, Tensor]] = field(default_factory=list)

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        self.seen.append({key: tensor.clone() for key, tensor in buffers.items()})
        return super().encoder_cudagraph_forward(buffers)


def test_pitfall_1_11_what_is_captured_has_run_before_on_valid_contents_that_fill_the_graph() -> None:
    model = HygienicEncoder()

    class FirstCall(RecordingBackend):
        def capture(self, work: Work) -> Work:
            model.seen.clear()
            replay = super().capture(work)
            (buffers,) = model.seen
            assert buffers["rows"].isfinite().all()
            assert int(buffers["lengths"].sum()) == len(buffers["rows"])
            return replay

    assert captured(model, settings(SMALLEST, 16, 32), backend=FirstCall()).stats.graphs_switched_off == 0


def test_pitfall_1_12_every_eager_run_is_counted_with_its_reason() -> None:
    manager = captured(FakeEncoder(), settings())
    manager.execute(RowBatch.of([40], [4], [40, 40]))
    manager.execute(RowBatch.of([4, 4], modality="audio"))
    assert manager.stats.eager_tiles_by_reason == {"tile_exceeds_every_budget": 3, "modality_not_captured": 2}
    assert manager.stats.eager_runs == {"tile_exceeds_every_budget": 2, "modality_not_captured": 1}
    assert manager.stats.tiles == manager.stats.replayed_tiles + manager.stats.eager_tiles == 6


def test_pitfall_1_13_graph_and_eager_are_compared_for_every_graph_before_anything_is_served() -> None:
    compared: list[int] = []

    class Watched(FakeEncoder):
        def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
            compared.append(batch.tokens)
            return super().encoder_eager_forward(batch)

    manager = captured(Watched(), settings())
    assert [max(compared[3 * i : 3 * i + 3]) for i in range(3)] == [
        report.capacity.tokens for report in manager.reports
    ]
    assert all(report.fault is None for report in manager.reports)


class NoReadBack(TorchDispatchMode):
    """Makes reading a single value of a tensor on the host an error."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in str(func):
            raise AssertionError(f"{func} reads the device")
        return func(*args, **(kwargs or {}))


def test_pitfall_1_14_the_manager_reads_nothing_back() -> None:
    manager = captured(FakeEncoder(), settings())
    with NoReadBack():
        manager.execute(RowBatch.of([4, 16], [40], [12]))
    with NoReadBack(), pytest.raises(AssertionError, match="reads the device"):
        int(torch.ones(1).sum())


def test_pitfall_1_14_the_encoder_runs_on_tensors_that_have_no_values_to_read(
    vlm: VLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows_alone(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:  # noqa: ARG001
        return value.flatten(1)

    monkeypatch.setattr(vision, "attention", rows_alone)  # the CPU's own attention reads the bounds; the GPU's does not
    encoder = copy.deepcopy(vlm.model.encoder).to("meta")
    with torch.no_grad():
        features = encoder(torch.empty(1280, 768, device="meta"), torch.empty(5, 2, dtype=torch.int32, device="meta"))
    assert features.shape == (320, vlm.model.config.language.hidden_size)


def test_pitfall_1_15_an_item_beyond_every_budget_runs_at_once() -> None:
    manager = captured(FakeEncoder(), settings())
    features = manager.execute(RowBatch.of([500]))
    assert features[0].shape[0] == 500


def test_pitfall_1_15_a_picture_too_thin_for_a_tile_is_refused_at_the_door(vlm: VLM) -> None:
    with pytest.raises(ImageSizeError, match="bound is 256"):
        plan_tiles(10000, 1, vlm.model.config.images)


def test_pitfall_1_16_graphs_are_kept_even_those_at_fault_because_others_share_their_pool() -> None:
    kept: list[weakref.ref[Work]] = []

    class WatchedBackend(RecordingBackend):
        def capture(self, work: Work) -> Work:
            replay = super().capture(work)
            kept.append(weakref.ref(replay))
            return replay

    manager = captured(OneBadGraph(), settings(), backend=WatchedBackend(), strict=False)
    gc.collect()
    assert manager.stats.graphs_switched_off == 1
    assert [replay() is not None for replay in kept] == [True] * len(BUDGETS)

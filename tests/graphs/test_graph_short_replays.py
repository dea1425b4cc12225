"""Beside others, no replay takes longer than it may, and what comes out is the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.graphs import EncoderCudaGraphManager, FixedCosts
from foveate.models.lfm2_vl.encoder_graphs import Lfm2VlEncoderGraphs
from foveate.vlm import VLM

from .checks import CPU, FEW
from .fake_encoder import settings
from .test_graph_lfm2_vl import SHAPES, batch_of

COSTS = FixedCosts(fixed_ms=1.0, ms_per_token=0.01)  # 64: 1.64, 128: 2.28, 256: 3.56, 320: 4.2, 576: 6.76


@pytest.fixture(scope="module")
def manager(vlm: VLM) -> EncoderCudaGraphManager:
    graphs = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config)
    made = EncoderCudaGraphManager(graphs, CPU, settings(64, 128, 256, 320, 576), costs=COSTS, strict=True)
    made.capture()
    return made


@FEW
@given(
    images=st.lists(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4), min_size=1, max_size=4),
    most_ms=st.sampled_from([0.5, 2.0, 2.5, 4.0, 5.0, 100.0]),
)
def test_replays_stay_below_what_they_may_take_and_give_the_same_features(
    manager: EncoderCudaGraphManager, images: list[list[tuple[int, int]]], most_ms: float
) -> None:
    batch = batch_of(images, 1)
    plan, features = manager.plan_and_execute(batch, most_ms=most_ms)
    assert not plan.eager_runs
    # A full tile has 256 tokens, and needs its graph.
    assert all(run.budget <= 256 or COSTS.replay_ms(run.budget) <= most_ms for run in plan.replays)
    expected = manager.plan_and_execute(batch)[1]
    for ours, usual in zip(features, expected, strict=True):
        torch.testing.assert_close(ours, usual, rtol=1e-5, atol=1e-5)


def test_without_a_bound_the_largest_are_used(manager: EncoderCudaGraphManager) -> None:
    batch = batch_of([[(32, 32), (32, 32), (16, 16)]], 1)
    assert [run.budget for run in manager.plan_and_execute(batch)[0].replays] == [576]
    assert [run.budget for run in manager.plan_and_execute(batch, most_ms=5.0)[0].replays] == [256, 320]
    assert [run.budget for run in manager.plan_and_execute(batch)[0].replays] == [576]


def test_a_bound_that_was_asked_for_before_the_capture_finds_the_graphs_after_it(vlm: VLM) -> None:
    graphs = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config)
    fresh = EncoderCudaGraphManager(graphs, CPU, settings(256, 576), costs=COSTS, strict=True)
    batch = batch_of([[(32, 32), (16, 16)]], 1)
    assert not fresh.plan_and_execute(batch, most_ms=5.0)[0].replays
    fresh.capture()
    assert fresh.plan_and_execute(batch, most_ms=5.0)[0].replays


def test_plans_that_are_fixed_stay_so(vlm: VLM) -> None:
    graphs = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config)
    fixed = EncoderCudaGraphManager(graphs, CPU, settings(256, 576, plan="fixed"), strict=True)
    fixed.capture()
    batch = batch_of([[(32, 32), (32, 32)]], 1)
    assert fixed.plan_and_execute(batch, most_ms=0.1)[0] == fixed.plan(batch)


def test_an_encoder_takes_the_bound(graphs: GraphImageEncoder) -> None:
    batch = batch_of([[(16, 16), (16, 16), (16, 16)]], 1)
    assert graphs.encode(batch).report.replays == (320,)
    assert max(graphs.encode(batch, most_ms=0.1).report.replays) < 320

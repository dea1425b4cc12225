"""`encoder_plan="fixed"`: an image has the same bits in any company."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foveate.checkpoints import layout, shrunk
from foveate.engine.graph_encoding import GraphImageEncoder
from foveate.errors import ConfigurationError
from foveate.graphs import EncoderItemSpec, FixedCosts, MeasuredCosts, Plan, TileSpec
from foveate.graphs.fixed_plans import ItemByItem
from foveate.graphs.planner import eager_plan
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.testing import random_vlm

from .checks import FEW, MANY, captured, poison, same_bits
from .fake_encoder import BUDGETS, FakeEncoder, RowBatch, settings
from .test_graph_lfm2_vl import SHAPES, Images, batch_of

TILE = st.integers(1, 20) | st.integers(30, 40)
ITEMS = st.lists(st.lists(TILE, max_size=5), min_size=1, max_size=12)
FIXED = {
    "cudagraph_mm_encoder": True,
    "encoder_cudagraph_token_budgets": [64, 128, 320],
    "encoder_plan": "fixed",
}


@pytest.fixture(scope="module")
def fixed() -> GraphImageEncoder:
    vlm = random_vlm(shrunk(layout("LFM2.5-VL-450M")), device="cpu", dtype="float32", compilation_config=FIXED)
    assert isinstance(vlm.encoder, GraphImageEncoder)
    return vlm.encoder


@FEW
@given(
    image=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4),
    before=st.lists(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2), max_size=3),
    behind=st.lists(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2), max_size=3),
)
def test_a_picture_of_lfm2_vl_has_the_same_bits_in_any_company(
    fixed: GraphImageEncoder, image: list[tuple[int, int]], before: Images, behind: Images
) -> None:
    picture = batch_of([image], 1)
    alone = fixed.encode(picture).features
    poison(fixed.manager)
    others = [batch_of([shapes], 2 + index) for index, shapes in enumerate([*before, *behind])]
    company = packed([*others[: len(before)], picture, *others[len(before) :]])
    assert same_bits([fixed.encode(company).features[len(before)]], alone)


def packed(batches: list[ImageBatch]) -> ImageBatch:
    tiles = tuple(tile for batch in batches for tile in batch.tiles)
    counts = tuple(count for batch in batches for count in batch.tiles_per_image)
    return ImageBatch(torch.cat([batch.patches for batch in batches]), tiles, counts)


@MANY
@given(items=ITEMS, modality=st.sampled_from(["image", "audio"]))
def test_the_plan_of_a_batch_is_that_of_its_items_one_after_another(items: list[list[int]], modality: str) -> None:
    manager = captured(FakeEncoder(), settings(plan="fixed"))
    together = manager.plan(RowBatch.of(*items, modality=modality)).runs
    alone = [manager.plan(RowBatch.of(item, modality=modality)).runs for item in items]
    assert [(run.tokens, run.budget, run.reason) for run in together] == [
        (run.tokens, run.budget, run.reason) for runs in alone for run in runs
    ]
    assert [tile for run in together for tile in run.tiles] == list(range(sum(map(len, items))))


def test_with_automatic_plans_images_share_a_graph_and_with_fixed_ones_they_do_not() -> None:
    batch = RowBatch.of([4], [4], [4])
    assert [run.budget for run in captured(FakeEncoder(), settings()).plan(batch).runs] == [12]
    assert [run.budget for run in captured(FakeEncoder(), settings(plan="fixed")).plan(batch).runs] == [4, 4, 4]


def test_fixed_plans_do_not_follow_measured_costs_which_change_from_machine_to_machine() -> None:
    dear = MeasuredCosts(dict.fromkeys(BUDGETS, 9.0), ((4, 1.0),))
    manager = captured(FakeEncoder(), settings(plan="fixed"), costs=dear)
    assert manager.costs == FixedCosts()
    assert [run.budget for run in manager.plan(RowBatch.of([4, 16])).runs] == [32]


def test_tiles_that_run_eagerly_run_with_those_of_their_own_image_alone() -> None:
    manager = captured(FakeEncoder(), settings(plan="fixed"))
    manager.execute(RowBatch.of([40, 40], [40]))
    assert manager.stats.eager_runs == {"tile_exceeds_every_budget": 2}


def test_plans_are_remembered_by_the_sizes_of_an_item_and_not_by_the_item() -> None:
    asked: list[EncoderItemSpec] = []

    def plan(specs: Sequence[EncoderItemSpec]) -> Plan:
        asked.extend(specs)
        return eager_plan(specs, "graphs_switched_off")

    def item() -> EncoderItemSpec:
        return EncoderItemSpec.of([TileSpec(8, 4), TileSpec(8, 4)])

    together = ItemByItem(plan)([item(), item()])
    assert asked == [item()]
    assert [run.first_tile for run in together.runs] == [0, 2]


def test_fixed_plans_without_graphs_are_refused_with_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="encoder graphs are off here; set cudagraph_mm_encoder to true"):
        random_vlm("tiny", device="cpu", dtype="float32", compilation_config={"encoder_plan": "fixed"})


def test_a_plan_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="encoder_plan is 'best'; allowed are auto and fixed"):
        random_vlm("tiny", device="cpu", dtype="float32", compilation_config={"encoder_plan": "best"})

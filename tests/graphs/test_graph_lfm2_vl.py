"""What the encoder graphs promise, on a shrunk LFM2-VL."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from foveate import SamplingParams
from foveate.checkpoints import layout, shrunk
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.graph_encoding import GraphImageEncoder, capture_encoder
from foveate.graphs import EncoderGraphSettings, GraphCapacity, OutputRows, Planner
from foveate.graphs.budgets import graph_capacities
from foveate.models.lfm2_vl.encoder_graphs import Lfm2VlEncoderGraphs, picture_spec
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape, plan_tiles
from foveate.testing import random_vlm
from foveate.vlm import VLM

from .checks import FEW, error, joined, poison, rounding, same_bits

SHAPES = [(2, 4), (16, 16), (8, 32), (18, 16), (2, 128), (24, 20), (32, 32), (4, 256)]
"""(rows, columns) in patches: 2 to 256 image tokens, square and thin."""
IMAGE = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2)
IMAGES = st.lists(IMAGE, min_size=1, max_size=8) | st.lists(
    st.lists(st.sampled_from(SHAPES[:4]), min_size=1, max_size=1), min_size=20, max_size=40
)

Images = list[list[tuple[int, int]]]


def batch_of(images: Images, seed: int) -> ImageBatch:
    shapes = tuple(TileShape(*shape) for image in images for shape in image)
    rows = sum(shape.num_patches for shape in shapes)
    patches = torch.rand(rows, 768, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return ImageBatch(patches, shapes, tuple(len(image) for image in images))


def eager_features(vlm: VLM, batch: ImageBatch) -> Tensor:
    patches = batch.patches.to(vlm.model.dtype)
    with torch.no_grad():
        return joined(EagerImageEncoder(vlm.model.encoder).encode(replace(batch, patches=patches)).features)


@FEW
@given(images=IMAGES, others=IMAGES)
def test_1a_the_same_batch_has_the_same_bits_whatever_ran_before_and_whatever_lies_in_the_buffers(
    graphs: GraphImageEncoder, images: Images, others: Images
) -> None:
    batch = batch_of(images, 1)
    first = graphs.encode(batch).features
    graphs.encode(batch_of(others, 2))
    poison(graphs.manager)
    assert same_bits(graphs.encode(batch).features, first)


@pytest.mark.parametrize("images", [[[(16, 16)]], [[(8, 32), (2, 4)]], [[(16, 16)], [(2, 128), (24, 20)]]])
def test_1b_a_replay_has_the_bits_of_the_same_kernels_on_buffers_padded_by_hand(
    vlm: VLM, graphs: GraphImageEncoder, images: Images
) -> None:
    batch = batch_of(images, 3)
    (run,) = graphs.manager.plan(batch).runs
    assert run.budget is not None
    patches = torch.full((4 * run.budget, 768), torch.nan)
    patches[: run.input_rows] = batch.patches
    shapes = torch.zeros(run.budget // 64, 2, dtype=torch.int32)
    shapes[: len(batch.tiles)] = batch.tile_shapes()
    with torch.no_grad():
        by_hand = vlm.model.encoder(patches, shapes)
    assert same_bits([joined(graphs.encode(batch).features)], [by_hand[: run.tokens]])
    assert (by_hand[run.tokens :] == 0).all()


@FEW
@given(images=IMAGES, seed=st.integers(0, 99))
def test_1c_any_batch_agrees_with_plain_torch_within_twice_the_error_of_plain_torch(
    vlm: VLM, exact_vlm: VLM, graphs: GraphImageEncoder, images: Images, seed: int
) -> None:
    batch = batch_of(images, seed)
    exact = eager_features(exact_vlm, batch)
    plain = error(eager_features(vlm, batch), exact)
    assert error(joined(graphs.encode(batch).features), exact) <= 2 * plain + rounding(exact, torch.float32)


def test_1c_in_bfloat16_too() -> None:
    low = random_vlm(shrunk(layout("LFM2.5-VL-1.6B")), device="cpu", dtype="bfloat16")
    exact_low = random_vlm(shrunk(layout("LFM2.5-VL-1.6B")), device="cpu", dtype="bfloat16")
    exact_low.model.double()
    settings = EncoderGraphSettings(True, (64, 192))
    graphs = capture_encoder(low.model, settings, strict=True)
    for seed, images in enumerate([[[(16, 16)]], [[(24, 20)], [(16, 16)]], [[(8, 32), (2, 4)]] * 5]):
        batch = batch_of(images, seed)
        batch = replace(batch, patches=batch.patches.bfloat16())
        exact = eager_features(exact_low, batch)
        plain = error(eager_features(low, batch), exact)
        assert error(joined(graphs.encode(batch).features), exact) <= 2 * plain + rounding(exact, torch.bfloat16)


def test_1c_answers_have_the_same_tokens_with_graphs_and_without(vlm: VLM) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 900, 1200, 3), dtype=np.uint8)
    pictures = [noise[0], noise[1, :200, :300], noise[2, :64, :64]]
    sampling = SamplingParams(max_tokens=16)
    eager = VLM(vlm.model, vlm.processor).describe(*pictures, sampling=sampling)
    replayed = vlm.describe(*pictures, sampling=sampling)
    assert replayed.encoder is not None
    assert replayed.encoder.mode == "eager_buffers"
    assert len(replayed.encoder.replays) > 1
    assert replayed.token_ids == eager.token_ids


@FEW
@given(images=IMAGES)
def test_3_every_picture_comes_back_in_order_with_its_tokens_and_the_report_adds_up(
    graphs: GraphImageEncoder, images: Images
) -> None:
    encoded = graphs.encode(batch_of(images, 5))
    tokens = [sum(rows * columns // 4 for rows, columns in image) for image in images]
    assert [len(rows) for rows in encoded.features] == tokens
    assert encoded.report.real_tokens == sum(tokens)
    assert sum(encoded.report.replays) - encoded.report.padded_tokens == sum(tokens)
    assert encoded.report.eager_runs == {}


def test_small_large_small_and_two_outputs_kept(graphs: GraphImageEncoder) -> None:
    small, large = batch_of([[(16, 16)]], 1), batch_of([[(32, 32)] * 5, [(24, 20)]], 2)
    first = graphs.encode(small).features
    kept = [rows.clone() for rows in first]
    graphs.encode(large)
    assert same_bits(graphs.encode(small).features, first)
    assert same_bits(first, kept)


def test_rows_are_scattered_into_the_callers_embeddings(graphs: GraphImageEncoder) -> None:
    batch = batch_of([[(16, 16)], [(32, 32), (8, 32)]], 6)
    expected = joined(graphs.encode(batch).features)
    embeddings = torch.zeros(len(expected) + 9, expected.shape[1])
    rows = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))[: len(expected)]
    assert graphs.manager.execute(batch, OutputRows(embeddings, rows)) == []
    assert torch.equal(embeddings[rows], expected)


@pytest.mark.parametrize("tokens", [64, 65, 100, 128, 251, 256, 320, 2816])
@pytest.mark.parametrize("short_tiles", [False, True])
def test_what_graphs_are_captured_and_checked_with_fills_them_with_tiles_the_model_can_have(
    vlm: VLM, tokens: int, short_tiles: bool
) -> None:
    model = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config)
    capacity = GraphCapacity(tokens, 4 * tokens, tokens // 64, tokens // 64)
    batch, same, other = (
        model.prepare_encoder_cudagraph_capture_inputs(capacity, seed=seed, short_tiles=short_tiles)
        for seed in (1, 1, 2)
    )
    (spec,) = model.get_encoder_cudagraph_item_specs(batch)
    assert spec.output_tokens == tokens
    assert len(spec.tiles) == (tokens // 64 if short_tiles else -(-tokens // 256))
    assert max(tile.output_tokens for tile in spec.tiles) <= 256
    assert torch.equal(batch.patches, same.patches)
    assert not torch.equal(batch.patches, other.patches)


@pytest.mark.parametrize(("width", "height"), [(64, 64), (1200, 900), (3000, 2000), (4096, 4096), (1024, 529)])
def test_real_sizes_of_pictures_replay_as_they_are_cut(
    vlm: VLM, graphs: GraphImageEncoder, width: int, height: int
) -> None:
    grid = plan_tiles(width, height, vlm.model.config.images)
    batch = batch_of([[(tile.rows, tile.columns) for tile in grid.tiles]], 0)
    ours, eager = joined(graphs.encode(batch).features), eager_features(vlm, batch)
    assert error(ours, eager) <= 1e-5 * float(eager.norm())


TRACE = {
    (1920, 1080): 20,
    (3024, 4032): 15,
    (1024, 1024): 15,
    (512, 512): 10,
    (640, 480): 10,
    (1280, 720): 10,
    (1170, 2532): 10,
    (768, 1376): 10,
}
"""Screens, photographs, telephones and squares: how many in a hundred pictures are such."""


def test_automatic_budgets_pad_pictures_as_people_have_them_by_6_percent_at_most(vlm: VLM) -> None:
    model, config = Lfm2VlEncoderGraphs(vlm.model.encoder, vlm.model.config), vlm.model.config
    span = model.get_encoder_cudagraph_budget_range()
    planner = Planner(graph_capacities(EncoderGraphSettings(), span, inputs_per_token=4, frames_per_video=0))
    padded = replayed = 0
    for (width, height), count in TRACE.items():
        plan = planner.plan([picture_spec(plan_tiles(width, height, config.images).tiles, 2)])
        assert plan.eager_runs == ()
        padded += count * sum(run.padded_tokens for run in plan.runs)
        replayed += count * sum(run.tokens + run.padded_tokens for run in plan.runs)
    assert padded <= 0.06 * replayed

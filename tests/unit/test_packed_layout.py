"""Where patches and image tokens lie in a packed batch, against a plain loop over tiles, rows and columns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.models.lfm2_vl.layout import PackedLayout, packed_layout

Shapes = list[tuple[int, int]]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Shapes, int, int, int]:
    """Shapes of tiles, unused slots behind them, rows of padding, and the downsample factor."""
    factor = draw(st.integers(1, 3))
    sides = st.integers(1, 5).map(lambda blocks: blocks * factor)
    shapes = draw(st.lists(st.tuples(sides, sides), max_size=5))
    empty_slots = draw(st.integers(0 if shapes else 1, 3))
    padding = draw(st.integers(0, 4)) * factor**2
    return shapes, empty_slots, padding, factor


def layout_of(shapes: Shapes, empty_slots: int, padding: int, factor: int) -> PackedLayout:
    num_rows = sum(rows * columns for rows, columns in shapes) + padding
    return packed_layout(torch.tensor([*shapes, *[(0, 0)] * empty_slots]), num_rows, factor)


@settings(deadline=None)
@given(batches())
def test_bounds_begin_with_0_and_repeat_the_last_row_in_unused_slots(batch: tuple[Shapes, int, int, int]):
    shapes, empty_slots, _, _ = batch
    bounds = [0]
    for rows, columns in shapes:
        bounds.append(bounds[-1] + rows * columns)
    layout = layout_of(*batch)
    assert layout.bounds.tolist() == bounds + bounds[-1:] * empty_slots
    assert layout.bounds.dtype == torch.int32


@settings(deadline=None)
@given(batches())
def test_each_patch_knows_its_place_and_padding_looks_like_a_lone_patch(batch: tuple[Shapes, int, int, int]):
    shapes, _, padding, _ = batch
    expected = [
        [row, column, rows, columns] for rows, columns in shapes for row in range(rows) for column in range(columns)
    ]
    assert layout_of(*batch).patch_grid.tolist() == expected + [[0, 0, 1, 1]] * padding


@settings(deadline=None)
@given(batches())
def test_each_token_gathers_the_patches_of_its_block_in_reading_order(batch: tuple[Shapes, int, int, int]):
    shapes, _, padding, factor = batch
    expected, first = [], 0
    for rows, columns in shapes:
        for top in range(0, rows, factor):
            for left in range(0, columns, factor):
                block = [(top + down, left + right) for down in range(factor) for right in range(factor)]
                expected.append([first + row * columns + column for row, column in block])
        first += rows * columns
    layout = layout_of(*batch)
    num_padding = padding // factor**2
    assert layout.gather_index.view(-1, factor**2).tolist() == expected + [[0] * factor**2] * num_padding
    assert layout.is_padding.flatten().tolist() == [False] * len(expected) + [True] * num_padding


def test_shapes_of_32_bit_integers_do_as_well():
    """That is how they are copied to a device."""
    shapes = [(4, 6), (2, 2)]
    wide, narrow = (packed_layout(torch.tensor(shapes, dtype=kind), 28, 2) for kind in (torch.int64, torch.int32))
    assert torch.equal(wide.gather_index, narrow.gather_index)
    assert torch.equal(wide.patch_grid, narrow.patch_grid)


@pytest.mark.parametrize("fill", [0.0, float("nan")])
def test_padding_rows_and_slots_change_no_feature_and_come_out_as_zeros(tiny_vlm: foveate.VLM, fill: float):
    encoder, shapes = tiny_vlm.model.encoder, torch.tensor([(8, 4), (2, 6)])
    patches = torch.rand(44, 768, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = encoder(patches, shapes)
        padded = encoder(torch.cat([patches, torch.full((36, 768), fill)]), torch.cat([shapes, shapes.new_zeros(3, 2)]))
    torch.testing.assert_close(padded[:11], expected, rtol=0, atol=1e-5)
    assert not padded[11:].any()

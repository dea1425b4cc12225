"""The closed form of the position table is torch's antialiased bilinear interpolation."""

import copy

import pytest
import torch
from torch.nn import functional as F

from foveate.models.lfm2_vl.config import VisionConfig
from foveate.models.lfm2_vl.layout import packed_layout
from foveate.models.lfm2_vl.vision import PositionTable

SIDE, WIDTH = 16, 24
GRIDS = [(1, 1), (2, 2), (2, 512), (512, 2), (4, 80), (80, 4), (8, 30), (15, 17), (16, 16), (16, 64), (32, 32), (3, 5)]


@pytest.fixture(scope="module")
def table() -> PositionTable:
    config = VisionConfig(
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_layers=1,
        num_heads=1,
        patch_size=16,
        num_channels=3,
        position_grid=SIDE,
        norm_eps=1e-6,
        activation="gelu",
    )
    table = PositionTable(config).requires_grad_(False)
    table.weight.copy_(torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(0)))
    return table


def resized(table: PositionTable, rows: int, columns: int) -> torch.Tensor:
    square = table.weight.T.unflatten(1, (SIDE, SIDE))[None]
    result = F.interpolate(square, (rows, columns), mode="bilinear", align_corners=False, antialias=True)
    return result[0].flatten(1).T


@pytest.mark.parametrize("grid", GRIDS, ids="{0[0]}x{0[1]}".format)
def test_positions_of_one_tile_are_torch_s_interpolation(table: PositionTable, grid: tuple[int, int]):
    """Sides of fewer patches than the table has, where antialiasing matters, are among them."""
    rows, columns = grid
    layout = packed_layout(torch.tensor([grid]), rows * columns, 1)
    torch.testing.assert_close(table(layout.patch_grid), resized(table, rows, columns), rtol=0, atol=1e-5)


def test_positions_of_packed_tiles_are_those_of_each_alone(table: PositionTable):
    num_patches = sum(rows * columns for rows, columns in GRIDS)
    layout = packed_layout(torch.tensor(GRIDS), num_patches, 1)
    expected = torch.cat([resized(table, *grid) for grid in GRIDS])
    torch.testing.assert_close(table(layout.patch_grid), expected, rtol=0, atol=1e-5)


def test_the_table_itself_comes_back_unchanged(table: PositionTable):
    layout = packed_layout(torch.tensor([(SIDE, SIDE)]), SIDE * SIDE, 1)
    torch.testing.assert_close(table(layout.patch_grid), table.weight, rtol=0, atol=1e-6)


def test_padding_gets_finite_positions(table: PositionTable):
    layout = packed_layout(torch.tensor([(2, 4), (0, 0), (0, 0)]), 20, 1)
    assert bool(table(layout.patch_grid).isfinite().all())


def test_the_result_has_the_type_of_the_table(table: PositionTable):
    layout = packed_layout(torch.tensor([(4, 80)]), 320, 1)
    got = copy.deepcopy(table).to(torch.bfloat16)(layout.patch_grid)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), table(layout.patch_grid), rtol=0.01, atol=0.02)

"""Position rows in one launch, against their twin and torch's own interpolation in float64."""

import sys

import pytest
import torch
from torch.nn import functional as F

from foveate.kernels.position_rows import (
    patch_grid,
    position_rows,
    position_rows_reference,
    position_rows_triton,
    resized_rows,
)
from foveate.kernels.tile_layout import tile_layout_reference
from foveate.models.lfm2_vl.layout import packed_layout
from tests.folded_tower import random_tower, run_tower, tower_config
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

SIDE = 4
BATCHES = {
    "the table's own grid": ([(4, 4)], 16),
    "finer": ([(8, 8)], 64),
    "shorter and longer": ([(2, 16), (16, 2), (3, 10), (5, 6)], 124),
    "one patch": ([(1, 1), (3, 5)], 16),
    "several tiles in one block of rows": ([(1, 2), (2, 2), (1, 3), (2, 4)], 17),
    "padding and unused slots": ([(6, 4), (4, 6), (0, 0), (0, 0)], 60),
    "no tile at all": ([(0, 0)], 9),
    "an unused slot between two": ([(2, 4), (0, 0), (0, 0), (4, 4)], 24),
    "many slots": ([(2, 2), (1, 3)] * 10 + [(0, 0)] * 20, 80),
}
"""(rows, columns) of tiles, and rows in all."""


def arguments(name, device, *, side=SIDE, width=24, dtype=torch.float32):
    shapes, num_rows = BATCHES[name]
    tile_shapes = torch.tensor(shapes, dtype=torch.int32, device=device)
    bounds = tile_layout_reference(tile_shapes, num_rows, 1).bounds
    return random(side**2, width, dtype=dtype, device=device), tile_shapes, bounds, num_rows


def exact(table, tile_shapes, bounds, num_rows):
    """Torch's interpolation of each tile, zeros in the padding."""
    out = table.new_zeros(num_rows, table.shape[1], dtype=torch.float64)
    side = int(table.shape[0] ** 0.5)
    square = table.double().T.unflatten(1, (side, side))[None]
    for shape, first in zip(tile_shapes.tolist(), bounds.tolist(), strict=False):
        if 0 not in shape:
            resized = F.interpolate(square, shape, mode="bilinear", align_corners=False, antialias=True)
            out[first : first + shape[0] * shape[1]] = resized[0].flatten(1).T
    return out


@pytest.mark.parametrize("name", BATCHES)
def test_in_float32_it_is_the_twin_but_for_the_order_of_the_sums(device, name):
    given = arguments(name, device)
    ours, twin = position_rows_triton(*given), position_rows_reference(*given)
    assert relative_error(ours, twin) <= 1e-6
    assert relative_error(ours, exact(*given)) <= 1e-6


def test_a_table_and_a_tile_of_true_size_do_as_well(device):
    table, shapes = (
        random(256, 24, dtype=torch.float32, device=device),
        torch.tensor([(2, 40), (18, 16)], device=device),
    )
    given = table, shapes, tile_layout_reference(shapes, 380, 2).bounds, 380
    assert relative_error(position_rows_triton(*given), exact(*given)) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("side", "width"), [(4, 1152), (4, 130), (5, 8)])
def test_the_error_is_at_most_twice_that_of_plain_torch(device, side, width, dtype):
    given = arguments("several tiles in one block of rows", device, side=side, width=width, dtype=dtype)
    assert is_as_right(position_rows_triton(*given), position_rows_reference(*given), exact(*given))


def test_padding_is_zeros_whatever_the_memory_held(device, monkeypatch):
    table, tile_shapes, bounds, num_rows = arguments("padding and unused slots", device)
    new_empty = torch.Tensor.new_empty

    def full_of_nan(tensor, *shape, **named):
        out = new_empty(tensor, *shape, **named)
        return out.fill_(torch.nan) if out.is_floating_point() and shape == (num_rows, table.shape[1]) else out

    monkeypatch.setattr(torch.Tensor, "new_empty", full_of_nan)
    out = position_rows_triton(table, tile_shapes, bounds, num_rows)
    assert out[: int(bounds[-1])].isfinite().all()
    assert (out[int(bounds[-1]) :] == 0).all()


def test_a_table_that_is_not_a_number_in_one_cell_harms_only_patches_that_read_it(device):
    table, *rest = arguments("finer", device)
    clean = position_rows_triton(table, *rest)
    table[0] = torch.nan
    out = position_rows_triton(table, *rest)
    harmed = out.isnan().any(-1).view(8, 8)
    assert harmed[0, 0]
    assert not harmed[3:].any()
    assert not harmed[:, 3:].any()
    assert torch.equal(out.view(8, 8, -1)[3:], clean.view(8, 8, -1)[3:])


def test_wide_tile_shapes_do_as_well(device):
    table, tile_shapes, bounds, num_rows = arguments("shorter and longer", device)
    narrow = position_rows_triton(table, tile_shapes, bounds, num_rows)
    assert torch.equal(position_rows_triton(table, tile_shapes.long(), bounds, num_rows), narrow)


def test_the_twin_gives_the_gradient_of_the_table(device):
    table, *rest = arguments("padding and unused slots", device)
    table.requires_grad_(True)
    position_rows(table, *rest).sum().backward()
    real = int(rest[1][-1])
    assert table.grad.sum().item() == pytest.approx(real * table.shape[1], rel=1e-5)


def test_no_rows_give_no_rows(device):
    table = random(16, 24, dtype=torch.float32, device=device)
    nothing = torch.zeros(1, 2, dtype=torch.int32, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    assert position_rows_triton(table, *nothing, 0).shape == (0, 24)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    given = arguments("shorter and longer", device)
    chosen = position_rows_triton if device.type == "cuda" else position_rows_reference
    assert torch.equal(position_rows(*given), chosen(*given))


def test_the_twin_is_the_table_resized_by_the_grid(device):
    table, *rest = arguments("finer", device)
    assert torch.equal(position_rows_reference(table, *rest), resized_rows(table, patch_grid(*rest)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs whole networks where there is a GPU")
@pytest.mark.usefixtures("device")
def test_a_tower_on_the_kernels_of_its_prologue_is_that_on_the_twins(monkeypatch):
    tower = random_tower(tower_config(hidden_size=48, intermediate_size=64, num_layers=2, num_heads=2), bias_scale=0.3)
    shapes = torch.tensor([[2, 4], [4, 4], [0, 0]])
    patches = torch.randn(28, 48, generator=torch.Generator().manual_seed(0))
    twin, layout = run_tower(tower, patches, shapes), packed_layout(shapes, 28, 2)
    for module in ("position_rows", "tile_layout"):
        monkeypatch.setattr(f"foveate.kernels.{module}.runs_triton", lambda *_: True)
    ours, by_kernel = run_tower(tower, patches, shapes), packed_layout(shapes, 28, 2)
    assert relative_error(ours[:24], twin[:24]) <= 1e-5
    assert torch.equal(by_kernel.patch_grid, layout.patch_grid)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": torch.zeros(255, 24)}, r"table must be \[side \* side, width\].*\[255, 24\]"),
        ({"table": torch.zeros(24, 256).T}, r"contiguous.*strides \(1, 256\)"),
        ({"tile_shapes": torch.zeros(1, 2)}, "tile_shapes must be int32 or int64"),
        ({"bounds": torch.zeros(3, dtype=torch.int32)}, r"bounds must be int32 \[2\].*\[3\]"),
        ({"bounds": torch.zeros(2, dtype=torch.int64)}, "got torch.int64"),
    ],
    ids=["no square", "strided", "floats", "long bounds", "wide bounds"],
)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(change, message):
    names = ("table", "tile_shapes", "bounds", "num_rows")
    given = dict(zip(names, arguments("finer", torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        position_rows_triton(**(given | change))

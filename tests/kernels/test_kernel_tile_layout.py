"""The layout of packed tiles in one launch: the same numbers as its twin, and the twin those of a plain loop."""

import sys

import pytest
import torch

from foveate.kernels.tile_layout import tile_layout, tile_layout_reference, tile_layout_triton

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

BATCHES = {
    "one tile": ([(16, 16)], 256),
    "a 1x1 block": ([(2, 2)], 4),
    "odd shapes": ([(2, 512), (18, 16), (32, 32), (512, 2), (4, 6)], 3500),
    "unused slots": ([(4, 6), (2, 2), (0, 0), (0, 0), (0, 0)], 100),
    "an unused slot between two": ([(4, 6), (0, 0), (2, 8)], 60),
    "no tile at all": ([(0, 0), (0, 0)], 16),
    "more slots than are looked at together": ([(2, 2), (2, 6)] * 40 + [(0, 0)] * 61, 700),
    "as many slots as lanes": ([(2, 4)] * 64, 512),
    "no rows": ([(0, 0)], 0),
}


def shapes_of(name, device, dtype=torch.int32):
    shapes, num_rows = BATCHES[name]
    return torch.tensor(shapes, dtype=dtype, device=device), num_rows


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", BATCHES)
def test_every_number_is_that_of_the_twin(device, name, dtype):
    shapes, num_rows = shapes_of(name, device, dtype)
    ours, twin = tile_layout_triton(shapes, num_rows, 2), tile_layout_reference(shapes, num_rows, 2)
    for kernel, expected in zip(ours, twin, strict=True):
        assert kernel.dtype == expected.dtype
        assert kernel.shape == expected.shape
        assert torch.equal(kernel, expected)


@pytest.mark.parametrize("factor", [1, 3, 4])
def test_other_sizes_of_blocks_do_as_well(device, factor):
    sides = torch.tensor([(1, 2), (3, 1), (2, 2), (0, 0)], device=device) * factor
    num_rows = 15 * factor**2
    for kernel, twin in zip(
        tile_layout_triton(sides, num_rows, factor), tile_layout_reference(sides, num_rows, factor), strict=True
    ):
        assert torch.equal(kernel, twin)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device, monkeypatch):
    shapes, num_rows = shapes_of("odd shapes", device)
    called = []
    monkeypatch.setattr(
        "foveate.kernels.tile_layout.tile_layout_triton",
        lambda *given: called.append(given) or tile_layout_reference(*given),
    )
    tile_layout(shapes, num_rows, 2)
    assert len(called) == (device.type == "cuda")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (torch.zeros(4, 3, dtype=torch.int32), r"\[slots, 2\].*\[4, 3\]"),
        (torch.zeros(2, 4, dtype=torch.int32).T, r"contiguous.*strides \(1, 4\)"),
        (torch.zeros(4, 2), "got torch.float32"),
    ],
    ids=["wide", "strided", "floats"],
)
def test_shapes_it_cannot_take_are_refused_with_what_was_got(shapes, message):
    with pytest.raises(ValueError, match=message):
        tile_layout_triton(shapes, 16, 2)

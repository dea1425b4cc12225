"""What the encoder does before its first layer, at true sizes on the card: layout, position rows and kept offsets."""

import pytest
import torch
from torch import Tensor

from foveate.kernels.availability import twins_only
from foveate.kernels.position_rows import position_rows, position_rows_reference, position_rows_triton
from foveate.kernels.tile_layout import tile_layout_reference, tile_layout_triton
from foveate.testing import random_vlm
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SIDE = 16
WIDTHS = {"base": 768, "so400m": 1152}
BATCHES = {
    "a thumbnail": ([(16, 16)], 256),
    "one tile": ([(32, 32)], 1024),
    "five tiles": ([(32, 32)] * 5 + [(0, 0)] * 15, 5120),
    "eleven tiles": ([(32, 32)] * 10 + [(26, 38)] + [(0, 0)] * 33, 11264),
    "odd shapes": ([(2, 512), (32, 32), (8, 10), (512, 2), (18, 16), (2, 4)], 3584),
    "more slots than lanes": ([(2, 2), (2, 6)] * 80 + [(0, 0)] * 61, 1500),
}


def batch_of(name: str) -> tuple[Tensor, int]:
    shapes, num_rows = BATCHES[name]
    return torch.tensor(shapes, dtype=torch.int32, device="cuda"), num_rows


@pytest.mark.parametrize("batch", BATCHES)
def test_the_layout_is_that_of_the_twin(batch: str) -> None:
    shapes, num_rows = batch_of(batch)
    ours, twin = tile_layout_triton(shapes, num_rows, 2), tile_layout_reference(shapes, num_rows, 2)
    assert all(torch.equal(kernel, expected) for kernel, expected in zip(ours, twin, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("tower", WIDTHS)
def test_position_rows_are_as_right_as_the_twin_s(tower: str, batch: str, dtype: torch.dtype) -> None:
    """Against the twin on the host, which multiplies in full float32 and knows no other rounding."""
    shapes, num_rows = batch_of(batch)
    bounds = tile_layout_triton(shapes, num_rows, 2).bounds
    table = random(SIDE**2, WIDTHS[tower], dtype=dtype, device=torch.device("cuda"))
    ours = position_rows_triton(table, shapes, bounds, num_rows)
    exact = position_rows_reference(table.float().cpu(), shapes.cpu(), bounds.cpu(), num_rows).cuda()
    if dtype == torch.float32:
        assert relative_error(ours, exact) <= 2e-6
    else:
        assert is_as_right(ours, position_rows_reference(table, shapes, bounds, num_rows), exact)
    assert not ours[int(bounds[-1]) :].any()


def test_one_capture_serves_other_tiles_and_gives_the_bits_of_direct_launches() -> None:
    shapes = torch.zeros(44, 2, dtype=torch.int32, device="cuda")
    table = random(SIDE**2, 768, dtype=torch.bfloat16, device=torch.device("cuda"))

    def prologue() -> tuple[Tensor, ...]:
        layout = tile_layout_triton(shapes, 11264, 2)
        return (*layout, position_rows(table, shapes, layout.bounds, 11264))

    prologue()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = prologue()
    for tiles in ([(32, 32)] * 11, [(16, 16)] * 44, [(2, 512), (8, 10)], []):
        shapes.zero_()
        if tiles:
            shapes[: len(tiles)] = torch.tensor(tiles, dtype=torch.int32)
        graph.replay()
        assert all(torch.equal(replayed, direct) for replayed, direct in zip(captured, prologue(), strict=True))


@pytest.mark.parametrize("name", ["LFM2.5-VL-450M", "LFM2.5-VL-3B"])
@torch.inference_mode()
def test_features_on_the_kernels_are_as_near_to_float32_as_on_the_twins(name: str) -> None:
    encoder = random_vlm(name, device="cuda", compilation_config={"cudagraph_mm_encoder": False}).model.encoder
    shapes = torch.tensor([(32, 32), (18, 16), (2, 64), (0, 0)], dtype=torch.int32, device="cuda")
    patches = random(1536, 768, dtype=torch.bfloat16, device=torch.device("cuda"))
    ours = encoder(patches, shapes)
    with twins_only():
        twins = encoder(patches, shapes)
    exact = encoder.float()(patches.float(), shapes)
    assert not ours[360:].any()
    assert 0 < relative_error(ours, exact) <= 2 * relative_error(twins, exact)


def test_kept_offsets_follow_loaded_weights_at_their_address() -> None:
    encoder = random_vlm("tiny", device="cuda", compilation_config={"cudagraph_mm_encoder": False}).model.encoder
    encoder.refresh()
    addresses, offsets = encoder.weight_addresses(), encoder.tower.kept_offsets
    assert offsets is not None
    before = offsets.clone()
    encoder.load_state_dict({name: 2 * weight for name, weight in encoder.state_dict().items()})
    encoder.refresh()
    assert encoder.weight_addresses() == addresses
    assert torch.equal(offsets, 2 * before)

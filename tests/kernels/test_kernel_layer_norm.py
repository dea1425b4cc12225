"""The layer norm that adds what its rows lack, against its twin and the definition in float64."""

import sys

import pytest
import torch

from foveate.kernels.layer_norm import layer_norm, layer_norm_reference, layer_norm_triton, piece_widths
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

EPS = 1e-6


def arguments(rows, width, dtype, device, *, has_offset=True):
    weight, bias = (random(width, dtype=dtype, device=device, seed=seed) for seed in (1, 2))
    offset = random(width, dtype=torch.float32, device=device, seed=3) if has_offset else None
    return random(rows, width, dtype=dtype, device=device), offset, weight, bias


def exact(hidden, offset, weight, bias):
    wide = hidden.double() if offset is None else hidden.double() + offset.double()
    return torch.nn.functional.layer_norm(wide, weight.shape, weight.double(), bias.double(), EPS)


@pytest.mark.parametrize("has_offset", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (5, 24), (9, 768), (4, 1152)])
def test_the_error_is_at_most_twice_that_of_plain_torch(device, rows, width, dtype, has_offset):
    given = arguments(rows, width, dtype, device, has_offset=has_offset)
    assert is_as_right(layer_norm_triton(*given, EPS), layer_norm_reference(*given, EPS), exact(*given))


@pytest.mark.parametrize(
    ("width", "pieces"),
    [(1, (1, 1)), (2, (1, 1)), (3, (2, 1)), (16, (8, 8)), (768, (512, 256)), (1152, (1024, 128)), (4304, (4096, 256))],
)
def test_a_row_is_laid_out_in_a_power_of_two_below_its_width_and_one_for_the_rest(width, pieces):
    assert piece_widths(width) == pieces


def test_the_twin_without_an_offset_is_torch_s_layer_norm(device):
    hidden, _, weight, bias = arguments(7, 48, torch.float32, device, has_offset=False)
    expected = torch.nn.functional.layer_norm(hidden, (48,), weight, bias, EPS)
    assert torch.equal(layer_norm_reference(hidden, None, weight, bias, EPS), expected)


def test_the_sum_with_the_offset_is_not_rounded(device):
    """In bfloat16, 256 and 1 make 256: rows that differ by what is below a step still get different results."""
    hidden, _, weight, bias = arguments(1, 32, torch.bfloat16, device)
    hidden = hidden * 0 + 256
    offset = torch.linspace(-0.5, 0.5, 32, device=device)
    out = layer_norm_triton(hidden, offset, weight, bias, EPS)
    assert relative_error(out, exact(hidden, offset, weight, bias)) <= 1e-2


def test_the_statistics_survive_a_mean_far_above_the_spread(device):
    hidden, offset, weight, bias = arguments(3, 64, torch.float32, device)
    given = (hidden + 1000, offset, weight, bias)
    assert relative_error(layer_norm_triton(*given, EPS), exact(*given)) <= 1e-3


def test_a_row_that_is_not_a_number_does_not_reach_its_neighbours(device):
    hidden, *rest = arguments(3, 48, torch.float32, device)
    clean = layer_norm_triton(hidden, *rest, EPS)
    hidden[1] = float("nan")
    out = layer_norm_triton(hidden, *rest, EPS)
    assert out[1].isnan().all()
    assert torch.equal(out[::2], clean[::2])


def test_no_rows_give_no_rows(device):
    assert layer_norm_triton(*arguments(0, 48, torch.float32, device), EPS).shape == (0, 48)


def test_the_model_s_entry_gives_the_twin_on_a_cpu_and_the_kernel_on_a_gpu(device):
    given = arguments(5, 48, torch.bfloat16, device)
    chosen = layer_norm_triton if device.type == "cuda" else layer_norm_reference
    assert torch.equal(layer_norm(*given, EPS), chosen(*given, EPS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.zeros(4, 47)}, r"hidden must be \[rows, 48\].*\[4, 47\]"),
        ({"hidden": torch.zeros(48, 4).T}, r"contiguous.*strides \(1, 4\)"),
        ({"offset": torch.zeros(47)}, r"offset must be float32 \[48\].*\[47\]"),
        ({"offset": torch.zeros(48, dtype=torch.bfloat16)}, "got torch.bfloat16"),
    ],
    ids=["narrow", "strided", "narrow offset", "rounded offset"],
)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(change, message):
    names = ("hidden", "offset", "weight", "bias")
    given = dict(zip(names, arguments(4, 48, torch.float32, torch.device("cpu")), strict=True))
    with pytest.raises(ValueError, match=message):
        layer_norm_triton(**(given | change), eps=EPS)

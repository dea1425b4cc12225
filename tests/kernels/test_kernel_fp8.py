"""Rows in float8: the kernels against their twins, and the twins against what float8 can say at best."""

import sys

import pytest
import torch
from torch.nn import functional as F

from foveate.kernels.fp8 import (
    LARGEST,
    Fp8Rows,
    fp8_linear,
    fp8_linear_reference,
    gelu_fp8,
    gelu_fp8_reference,
    gelu_fp8_triton,
    layer_norm_fp8,
    layer_norm_fp8_reference,
    layer_norm_fp8_triton,
    quantise,
    quantise_reference,
    quantise_triton,
)
from tests.kernels.comparing import random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

EPS = 1e-6
HALF_STEP = 2.0**-4
"""The largest relative error of rounding to three bits behind the leading one."""
SHAPES = [(1, 16), (5, 24), (3, 768), (2, 1152)]
WIDTHS = [1, 2, 3, 17, 64, 3072, 4304]


def almost_the_same(rows: Fp8Rows, twin: Fp8Rows) -> bool:
    """Sums in another order move a scale's last bits, and a value on the edge of two float8 numbers to the other."""
    moved = (rows.values.view(torch.uint8) != twin.values.view(torch.uint8)).float().mean()
    return bool(moved < 0.01) and torch.allclose(rows.scales, twin.scales, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_rounding_gives_the_bits_of_plain_torch(device, rows, width, dtype):
    given = random(rows, width, dtype=dtype, device=device)
    out, twin = quantise_triton(given), quantise_reference(given)
    assert torch.equal(out.values.view(torch.uint8), twin.values.view(torch.uint8))
    assert torch.equal(out.scales, twin.scales)


@pytest.mark.parametrize("width", WIDTHS)
def test_rounding_gives_those_bits_at_any_width(device, width):
    given = random(4, width, dtype=torch.bfloat16, device=device)
    out, twin = quantise_triton(given), quantise_reference(given)
    assert torch.equal(out.values.view(torch.uint8), twin.values.view(torch.uint8))
    assert torch.equal(out.scales, twin.scales)


def test_every_row_uses_the_whole_range_and_is_right_to_half_a_step(device):
    sizes = torch.tensor([[1e-6], [1.0], [1e3], [1e6]], device=device)
    given = random(4, 64, dtype=torch.float32, device=device) * sizes
    rows = quantise_reference(given)
    assert (rows.values.float().abs().amax(-1) == LARGEST).all()
    smallest_step = rows.scales * 2.0**-9
    assert ((rows.wide() - given).abs() <= HALF_STEP * given.abs() + smallest_step / 2).all()


@pytest.mark.parametrize("run", [quantise_reference, quantise_triton])
def test_zeros_stay_zeros_and_a_row_that_is_not_a_number_keeps_to_itself(device, run):
    given = torch.zeros(3, 16, device=device)
    given[1, 3] = float("nan")
    wide = run(given).wide()
    assert not wide[::2].any()
    assert wide[1, 3].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), [*SHAPES, (2, 4304)])
def test_the_gelu_is_plain_torch_s(device, rows, width, dtype):
    given = 3 * random(rows, width, dtype=dtype, device=device)
    assert almost_the_same(gelu_fp8_triton(given), gelu_fp8_reference(given))


@pytest.mark.parametrize("has_branch", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_the_norm_is_plain_torch_s_and_the_sum_is_left_in_the_hidden_rows(device, rows, width, dtype, has_branch):
    hidden, branch = (random(rows, width, dtype=dtype, device=device, seed=seed) for seed in (0, 1))
    weight, bias = (random(width, dtype=dtype, device=device, seed=seed) for seed in (2, 3))
    offset = random(width, dtype=torch.float32, device=device, seed=4)
    branch = branch if has_branch else None
    twin_hidden, before = hidden.clone(), hidden.clone()
    out = layer_norm_fp8_triton(hidden, branch, offset, weight, bias, EPS)
    twin = layer_norm_fp8_reference(twin_hidden, branch, offset, weight, bias, EPS)
    assert almost_the_same(out, twin)
    assert torch.equal(hidden, twin_hidden)
    assert torch.equal(hidden, before) == (not has_branch)


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_of_quantised_operands_is_near_the_exact_one(device, has_bias):
    rows, weight = (
        random(*shape, dtype=torch.float32, device=device, seed=seed)
        for seed, shape in enumerate([(9, 256), (32, 256)])
    )
    bias = random(32, dtype=torch.bfloat16, device=device, seed=2) if has_bias else None
    exact = F.linear(rows, weight, None if bias is None else bias.float())
    out = fp8_linear(quantise(rows), quantise(weight), bias, torch.bfloat16)
    assert out.dtype == torch.bfloat16
    # Two operands with errors evenly spread in a step of at most an eighth: 0.026 each at most.
    assert 0.01 < relative_error(out, exact) < 0.05
    twin = fp8_linear_reference(quantise(rows), quantise(weight), bias, torch.bfloat16)
    assert relative_error(out, twin) <= 5e-3


def test_the_model_s_entries_give_the_twins_on_a_cpu_and_the_kernels_on_a_gpu(device):
    on_gpu = device.type == "cuda"
    rows, weight = random(3, 32, dtype=torch.bfloat16, device=device), random(32, dtype=torch.bfloat16, device=device)
    offset = torch.zeros(32, device=device)
    norm = layer_norm_fp8_triton if on_gpu else layer_norm_fp8_reference
    pairs = [
        (quantise(rows), (quantise_triton if on_gpu else quantise_reference)(rows)),
        (gelu_fp8(rows), (gelu_fp8_triton if on_gpu else gelu_fp8_reference)(rows)),
        (layer_norm_fp8(rows, None, offset, weight, weight, EPS), norm(rows, None, offset, weight, weight, EPS)),
    ]
    for got, expected in pairs:
        assert torch.equal(got.values.view(torch.uint8), expected.values.view(torch.uint8))
        assert torch.equal(got.scales, expected.scales)


def test_no_rows_give_no_rows(device):
    none, weight = torch.zeros(0, 16, device=device), torch.zeros(16, device=device)
    for rows in (
        quantise_triton(none),
        gelu_fp8_triton(none),
        layer_norm_fp8_triton(none, None, weight, weight, weight, EPS),
    ):
        assert rows.values.shape == (0, 16)
        assert rows.scales.shape == (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantise_triton(torch.zeros(16, 3).T), r"contiguous: got \[3, 16\], strides \(1, 3\)"),
        (lambda: gelu_fp8_triton(torch.zeros(16)), r"\[rows, width\].*got \[16\]"),
        (
            lambda: layer_norm_fp8_triton(*[torch.zeros(3, 16)] * 2, *[torch.zeros(15)] * 3, EPS),
            r"hidden must be \[3, 15\]",
        ),
        (
            lambda: layer_norm_fp8_triton(*[torch.zeros(3, 15)] * 2, *[torch.zeros(15).half()] * 3, EPS),
            "offset must be float32",
        ),
    ],
)
def test_arguments_they_cannot_take_are_refused_with_what_was_got(call, message):
    with pytest.raises(ValueError, match=message):
        call()

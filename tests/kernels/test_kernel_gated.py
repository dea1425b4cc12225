"""The pieces of the gated FFN, against plain torch."""

import sys

import pytest
import torch
from torch.nn import functional as F

from foveate.kernels import gated
from foveate.kernels.gated import (
    ProductForm,
    gated_product,
    gated_product_triton,
    silu_multiply,
    silu_multiply_reference,
    silu_multiply_triton,
    small_product,
    small_product_triton,
)
from tests.kernels.comparing import is_as_right, random, relative_error

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

DTYPES = [torch.float32, torch.bfloat16]
FORMS = [
    ProductForm(),
    ProductForm(outputs=4, columns=64),
    ProductForm(outputs=1, columns=32, warps=1, unroll=3, eviction="evict_first"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (5, 24), (3, 1500)])
def test_the_gate_times_up_is_plain_torch_s(device, rows, width, dtype):
    gate_up = random(rows, 2 * width, dtype=dtype, device=device)
    out, twin = silu_multiply_triton(gate_up), silu_multiply_reference(gate_up)
    assert is_as_right(out, twin, silu_multiply_reference(gate_up.double()))


def test_the_gate_is_rounded_before_the_product(device):
    gate_up = random(4, 512, dtype=torch.bfloat16, device=device)
    assert (silu_multiply_triton(gate_up) != silu_multiply_reference(gate_up)).float().mean() < 0.01


def test_extreme_gates_are_closed_or_open(device):
    gate_up = torch.tensor([[-1e4, 1e4, -200.0, 0.0, 2.0, 3.0, 4.0, 5.0]], device=device)
    assert silu_multiply_triton(gate_up).tolist() == [[0.0, 3e4, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 16, 6), (3, 40, 9), (4, 300, 30), (1, 1024, 4)])
def test_a_product_of_few_rows_is_as_right_as_the_library_s(device, rows, inputs, outputs, form, dtype):
    given, weight = (
        random(rows, inputs, dtype=dtype, device=device),
        random(outputs, inputs, dtype=dtype, device=device),
    )
    exact = given.double() @ weight.double().T
    assert is_as_right(small_product_triton(given, weight, form=form), F.linear(given, weight), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 16, 6), (3, 40, 9), (4, 300, 15), (1, 1024, 4)])
def test_a_gated_product_of_few_rows_is_as_right_as_its_parts(device, rows, inputs, outputs, form, dtype):
    given = random(rows, inputs, dtype=dtype, device=device) / inputs**0.5
    weight = random(2 * outputs, inputs, dtype=dtype, device=device, seed=1)
    twin = silu_multiply_reference(F.linear(given, weight))
    exact = silu_multiply_reference(given.double() @ weight.double().T)
    assert is_as_right(gated_product_triton(given, weight, form=form), twin, exact)


def test_no_rows_give_no_rows(device):
    none, weight = random(0, 16, dtype=torch.float32, device=device), random(8, 16, dtype=torch.float32, device=device)
    assert silu_multiply_triton(none).shape == (0, 8)
    assert gated_product_triton(none, weight).shape == (0, 4)
    assert small_product_triton(none, weight).shape == (0, 8)


def test_the_model_s_entries_give_plain_torch_s_values(device):
    rows, weight = random(3, 16, dtype=torch.float32, device=device), random(8, 16, dtype=torch.float32, device=device)
    expected = silu_multiply_reference(F.linear(rows, weight))
    assert relative_error(gated_product(rows, weight), expected) <= 1e-6
    assert relative_error(silu_multiply(F.linear(rows, weight)), expected) <= 1e-6
    bias = random(8, dtype=torch.float32, device=device, seed=1)
    assert torch.equal(small_product(rows, weight, bias), F.linear(rows, weight, bias))


@pytest.mark.parametrize(
    ("rows", "dtype", "has_bias", "is_ours"),
    [
        (1, torch.bfloat16, False, True),
        (1, torch.float16, False, True),
        (2, torch.bfloat16, False, False),
        (1, torch.float32, False, False),
        (1, torch.bfloat16, True, False),
    ],
)
def test_one_row_in_16_bits_without_a_bias_is_ours_and_the_rest_the_library_s(
    device, monkeypatch, rows, dtype, has_bias, is_ours
):
    monkeypatch.setattr(gated, "runs_triton", lambda *_: True)
    given, weight = random(rows, 64, dtype=dtype, device=device), random(8, 64, dtype=dtype, device=device, seed=1)
    bias = random(8, dtype=dtype, device=device, seed=2) if has_bias else None
    out, plain = small_product(given, weight, bias), F.linear(given, weight, bias)
    assert torch.equal(out, small_product_triton(given, weight) if is_ours else plain)
    assert relative_error(out, plain) <= 1e-2
    ours, twin = gated_product(given, weight), silu_multiply_triton(F.linear(given, weight))
    assert torch.equal(ours, gated_product_triton(given, weight) if is_ours or has_bias else twin)


def test_rows_that_do_not_lie_together_go_to_the_library(device, monkeypatch):
    monkeypatch.setattr(gated, "runs_triton", lambda *_: True)
    given = random(1, 64, dtype=torch.bfloat16, device=device)[:, ::2]
    weight = random(8, 32, dtype=torch.bfloat16, device=device, seed=1)
    assert torch.equal(small_product(given, weight), F.linear(given, weight))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: silu_multiply_triton(torch.zeros(3, 7)), r"\[rows, 2 \* width\].*got \[3, 7\]"),
        (lambda: silu_multiply_triton(torch.zeros(8, 3).T), "contiguous"),
        (lambda: gated_product_triton(torch.zeros(1, 4), torch.zeros(7, 4)), "gate, then up.*got 7 rows"),
        (lambda: small_product_triton(torch.zeros(1, 4), torch.zeros(8, 5)), r"got \[1, 4\] and \[8, 5\]"),
        (lambda: small_product_triton(torch.zeros(1, 4), torch.zeros(4, 8).T), r"got strides .* \(1, 8\)"),
    ],
)
def test_arguments_they_cannot_take_are_refused_with_what_was_got(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""The residual sum with its root-mean-square norm, against its twin."""

import sys

import pytest
import torch

from foveate.kernels.norm import add_rms_norm, add_rms_norm_reference, add_rms_norm_triton, rms_norm
from tests.kernels.comparing import is_as_right, random

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")

EPS = 1e-5


def arguments(rows, width, dtype, device):
    hidden, branch = (random(rows, width, dtype=dtype, device=device, seed=seed) for seed in (0, 1))
    return hidden, branch, random(width, dtype=dtype, device=device, seed=2)


def exact(total, weight):
    wide = total.double()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight.double()


@pytest.mark.parametrize("has_branch", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (5, 24), (3, 1024), (2, 2048)])
def test_the_sum_has_the_bits_of_plain_torch_and_the_norm_at_most_twice_its_error(
    device, rows, width, dtype, has_branch
):
    hidden, branch, weight = arguments(rows, width, dtype, device)
    branch = branch if has_branch else None
    total, out = add_rms_norm_triton(hidden, branch, weight, EPS)
    twin_total, twin = add_rms_norm_reference(hidden, branch, weight, EPS)
    assert torch.equal(total, twin_total)
    assert is_as_right(out, twin, exact(total, weight))


def test_the_rounding_before_the_weight_is_the_reference_s(device):
    """A product that is rounded once only differs from the twin in about a quarter of the values."""
    hidden, branch, weight = arguments(4, 512, torch.bfloat16, device)
    _, out = add_rms_norm_triton(hidden, branch, weight, EPS)
    _, twin = add_rms_norm_reference(hidden, branch, weight, EPS)
    once = exact(hidden + branch, weight).to(torch.bfloat16)
    assert (out != twin).float().mean() < 0.01
    assert (once != twin).float().mean() > 0.1


def test_without_a_branch_the_rows_themselves_come_back(device):
    hidden, _, weight = arguments(3, 16, torch.float32, device)
    assert add_rms_norm_triton(hidden, None, weight, EPS)[0] is hidden
    assert add_rms_norm_reference(hidden, None, weight, EPS)[0] is hidden


def test_the_rows_given_are_not_changed(device):
    hidden, branch, weight = arguments(3, 16, torch.float32, device)
    copies = hidden.clone(), branch.clone()
    add_rms_norm_triton(hidden, branch, weight, EPS)
    assert torch.equal(hidden, copies[0])
    assert torch.equal(branch, copies[1])


def test_no_rows_give_no_rows(device):
    total, out = add_rms_norm_triton(*arguments(0, 16, torch.float32, device), EPS)
    assert total.shape == out.shape == (0, 16)


def test_a_weight_in_training_gets_the_twin_and_its_gradient(device):
    hidden, branch, weight = arguments(3, 16, torch.float32, device)
    weight.requires_grad_(True)
    total, out = add_rms_norm(hidden, branch, weight, EPS)
    out.sum().backward()
    assert torch.equal(out, rms_norm(hidden + branch, weight, EPS))
    assert torch.equal(total, hidden + branch)
    assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.zeros(16, 3).T}, r"hidden must be \[3, 16\], contiguous.*strides \(1, 3\)"),
        ({"branch": torch.zeros(2, 16)}, r"branch must be \[3, 16\].*got \[2, 16\]"),
    ],
)
def test_arguments_it_cannot_take_are_refused_with_what_was_got(change, message):
    given = dict(zip(("hidden", "branch", "weight"), arguments(3, 16, torch.float32, "cpu"), strict=True))
    with pytest.raises(ValueError, match=message):
        add_rms_norm_triton(**(given | change), eps=EPS)

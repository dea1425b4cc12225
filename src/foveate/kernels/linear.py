"""Linear layers with what follows them."""

import torch
from torch import Tensor
from torch.nn import functional as F


def linear_gelu_tanh(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `gelu(rows @ weight.T + bias)` with the tanh approximation.

    `rows` is `[rows, inputs]`, `weight` `[outputs, inputs]`. On CUDA the GELU is the matrix product's epilogue
    (cuBLASLt), on float32 sums before they are rounded: one pass over the result instead of three.
    """
    if rows.is_cuda:
        return torch._addmm_activation(bias, rows, weight.t(), use_gelu=True)
    return F.gelu(F.linear(rows, weight, bias), approximate="tanh")


def add_product_(hidden: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Add `rows @ weight.T` to `hidden` in place, and return it.

    `hidden` is `[rows, outputs]`, `rows` `[rows, inputs]`, `weight` `[outputs, inputs]`. The sum is part of the matrix
    product: it is taken in float32 and rounded once, and the product is never written by itself.
    """
    return hidden.addmm_(rows, weight.t())

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

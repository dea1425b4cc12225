"""Random tensors on the GPU, the sizes of the language models, and the mark of tests that need Hopper."""

import pytest
import torch
from torch import Tensor

BF16 = torch.bfloat16
LANGUAGE = {"350M": (16, 8, 1024, 4608), "2.6B": (32, 8, 2048, 10752)}
"""Heads, key-value heads, width, FFN width; heads are 64 wide."""
PAGE_TOKENS = 64
needs_hopper = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs compute capability 9.0"
)


def random(*shape: int, dtype: torch.dtype = BF16, seed: int = 0) -> Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).to(dtype)

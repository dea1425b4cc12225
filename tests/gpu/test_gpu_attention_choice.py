"""The library's attention gives what ours gives, can be captured, and is measured beside it."""

import pytest
import torch

from foveate.kernels.attention import packed_attention
from foveate.kernels.attention_choice import AttentionSetting, flash_attention, measure_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

DEVICE = torch.device("cuda", 0)
SIZES = {"base": (12, 64), "so400m": (16, 72)}


@pytest.mark.parametrize("size", SIZES)
def test_the_librarys_attention_is_ours_with_zeros_in_the_padding(size: str) -> None:
    heads, head_size = SIZES[size]
    qkv = torch.randn(1500, 3, heads, head_size, device=DEVICE).bfloat16()
    bounds = torch.tensor([0, 1024, 1280, 1280, 1400], dtype=torch.int32, device=DEVICE)
    ours, librarys = (way(*qkv.unbind(1), bounds, 1024) for way in (packed_attention, flash_attention))
    assert (ours - librarys).float().norm() <= 5e-3 * ours.float().norm()
    assert not librarys[1400:].any()


@pytest.mark.parametrize("size", SIZES)
def test_both_are_measured_in_sixteen_bits_and_ours_alone_in_float32(size: str) -> None:
    heads, head_size = SIZES[size]
    times_us = measure_attention(AttentionSetting(heads, head_size, torch.bfloat16, 1024), DEVICE)
    assert set(times_us) == {"triton", "flash"}
    assert all(5 < microseconds < 1e4 for microseconds in times_us.values())
    assert set(measure_attention(AttentionSetting(heads, head_size, torch.float32, 1024), DEVICE)) == {"triton"}

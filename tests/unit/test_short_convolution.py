"""The packed short convolution is the plain one over each sequence, for chunks of any length."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from foveate.kernels.short_convolution import convolution_index, short_convolution

WIDTH = 5


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 5))
def test_sequences_cut_into_chunks_are_convolved_as_each_whole(chunks: list[list[int]], taps: int):
    """Zeros stand before a sequence's first row; chunks shorter than the state are among them."""
    generator = torch.Generator().manual_seed(sum(map(sum, chunks)) + taps)
    weight, bias = torch.randn(WIDTH, taps, generator=generator), torch.randn(WIDTH, generator=generator)
    sequences = [torch.randn(sum(lengths), WIDTH, generator=generator) for lengths in chunks]
    results: list[list[torch.Tensor]] = [[] for _ in chunks]
    states = torch.zeros(len(chunks), taps - 1, WIDTH)
    for turn in range(max(map(len, chunks))):
        running = [index for index, lengths in enumerate(chunks) if turn < len(lengths)]
        lengths = [chunks[index][turn] for index in running]
        starts = [sum(chunks[index][:turn]) for index in running]
        rows = torch.cat(
            [sequences[index][start : start + new] for index, start, new in zip(running, starts, lengths, strict=True)]
        )
        index = convolution_index(lengths, taps, torch.device("cpu"))
        mixed, states[running] = short_convolution(rows, states[running], weight, bias, index)
        for place, part in zip(running, mixed.split(lengths), strict=True):
            results[place].append(part)
    for sequence, parts in zip(sequences, results, strict=True):
        padded = F.pad(sequence.T[None], (taps - 1, 0))
        expected = F.conv1d(padded, weight[:, None], bias, groups=WIDTH)[0].T
        torch.testing.assert_close(torch.cat(parts), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_rounded_once(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(shape, generator=generator).to(dtype) for shape in ((6, WIDTH), (WIDTH, 3)))
    states = torch.zeros(1, 2, WIDTH, dtype=dtype)
    index = convolution_index([6], 3, torch.device("cpu"))
    mixed, state = short_convolution(rows, states, weight, None, index)
    padded = F.pad(rows.double().T[None], (2, 0))
    exact = F.conv1d(padded, weight.double()[:, None], groups=WIDTH)[0].T
    assert torch.equal(mixed, exact.to(torch.float32).to(dtype))
    assert torch.equal(state[0], rows[-2:])

"""Block sizes and head splits of the attention kernel."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from foveate.errors import ConfigurationError
from foveate.kernels.attention_tiles import AttentionTiles, HeadSplit, attention_tiles, split_head

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize(
    ("head_size", "split"),
    [
        (8, (16, 0)),
        (16, (16, 0)),
        (24, (32, 0)),
        (48, (32, 16)),
        (64, (64, 0)),
        (72, (64, 16)),
        (96, (64, 32)),
        (120, (128, 0)),
    ],
)
def test_a_head_is_covered_by_the_fewest_channels(head_size, split):
    assert split_head(head_size) == HeadSplit(*split)


def test_every_split_covers_its_head_with_sizes_a_tensor_core_takes():
    for head_size in range(8, 129, 8):
        split = split_head(head_size)
        assert split.main + split.tail >= head_size
        assert split.main in (16, 32, 64, 128)
        assert split.tail in (0, 16, 32, 64)


@pytest.mark.parametrize("head_size", [0, 4, 71, 136])
def test_a_head_size_out_of_bounds_is_refused_with_the_bounds(head_size):
    with pytest.raises(ConfigurationError, match=f"is {head_size} channels.*multiples of 8 from 8 to 128"):
        split_head(head_size)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((48, 64, 4, 3), "block_rows is 48.*power of two from 16 to 256"),
        ((64, 8, 4, 3), "block_columns is 8"),
        ((64, 64, 3, 3), "warps is 3"),
        ((64, 64, 4, 1), "stages is 1.*from 2 to 8"),
        ((64, 16, 8, 3), "block_columns is 16: with 8 warps it must be 32 or more"),
        ((64, 64, 4, 3, 250), "registers is 250.*multiple of 8 from 64 to 248"),
    ],
)
def test_a_block_size_out_of_bounds_is_refused_by_name(sizes, message):
    with pytest.raises(ConfigurationError, match=message):
        AttentionTiles(*sizes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("head_size", [16, 64, 72, 128])
@pytest.mark.parametrize("rows", [1, 256, 1024, 8192, 32768])
def test_the_chosen_blocks_fit_the_shared_memory_of_small_gpus(rows, head_size, dtype):
    tiles = attention_tiles(rows, 16, head_size, dtype)
    split = split_head(head_size)
    row_bytes = (split.main + split.tail) * dtype.itemsize
    used_bytes = (tiles.block_rows + 2 * tiles.stages * tiles.block_columns) * row_bytes
    assert used_bytes <= 99 * 1024, "99 KiB is what one program may use on compute capability 8.6 and 8.9"


def test_the_choice_is_within_a_tenth_of_the_fastest_measured():
    report = json.loads((RESULTS / "nvidia-h200" / "attention.json").read_text())
    times_us = defaultdict(dict)
    for row in report["measurements"]:
        # The choice cannot know how much of a budget will be padding, "256 of 4096" rows.
        if row["tiles"] is not None and " of " not in row["shape"]:
            shape = row["rows"], row["heads"], row["head_size"]
            times_us[shape][AttentionTiles(**row["tiles"])] = row["median_us"]
    assert len(times_us) >= 18
    for shape, measured_us in times_us.items():
        assert measured_us[attention_tiles(*shape, torch.bfloat16)] <= 1.1 * min(measured_us.values()), shape

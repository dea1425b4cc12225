"""How long does one launch of packed attention take, by block sizes, and what do the libraries' kernels take?

    python benchmarks/attention.py results.json

Each number is a launch inside a CUDA graph of 20, so no host time is in it: the median and the 95th percentile of 15
replays. The rows are exact, without padding, but for the last shape. Every candidate is checked against float64 before
it is timed.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from common import ceilings, need_gpu, write_report
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

from foveate.kernels.attention import packed_attention, packed_attention_reference
from foveate.kernels.attention_tiles import AttentionTiles, attention_tiles

LENGTHS = {
    "1x256": [256],
    "1x512": [512],
    "1x768": [768],
    "1x1024": [1024],
    "2x1024": [1024] * 2,
    "2x1024+768": [1024, 1024, 768],
    "5x1024": [1024] * 5,
    "9x1024+576": [1024] * 9 + [576],
    "32x1024": [1024] * 32,
    "1x256 of 4096": [256],
}
PADDED_ROWS = {"1x256 of 4096": 4096}
"""Rows in all, where there are more than those of the sequences; the rest is padding, of NaN."""

EMPTY_SLOTS = 40
"""Sequence slots without a row where there is padding: what a captured budget has to spare."""

TOWERS = {"so400m": (16, 72), "base": (12, 64)}
TILES = [
    AttentionTiles(64, 64, 4, 3, registers=168),
    AttentionTiles(64, 64, 4, 3),
    AttentionTiles(64, 64, 4, 2, registers=128),
    AttentionTiles(64, 128, 4, 2),
    AttentionTiles(128, 64, 8, 3, registers=128),
    AttentionTiles(128, 64, 8, 3),
    AttentionTiles(128, 64, 4, 3),
    AttentionTiles(128, 128, 8, 2),
]
LAUNCHES = 20
REPLAYS = 15
LARGEST_ERROR = 5e-3
"""Of bfloat16 against float64; plain torch has 2e-3."""


@dataclass(frozen=True)
class Measurement:
    """One candidate on one shape."""

    tower: str
    shape: str
    rows: int
    heads: int
    head_size: int
    """Channels of one head."""
    candidate: str
    """`packed 64x64 w4 s3 r168` (rows, columns, warps, stages, registers or 0), or the name of a library's kernel."""
    tiles: AttentionTiles | None
    """Block sizes of `packed_attention`, None for a library's kernel."""
    chosen: bool
    """Whether these are the block sizes that `packed_attention` takes by itself."""
    median_us: float
    p95_us: float
    tflops: float
    """Of the products of scores and values, head size as it is."""
    relative_error: float


def time_us(launch: Callable[[], Tensor]) -> tuple[float, float]:
    """Median and 95th percentile of one launch, microseconds."""
    for _ in range(2):
        launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            launch()
    graph.replay()
    edges = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    edges[0].record()
    for edge in edges[1:]:
        graph.replay()
        edge.record()
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) * 1e3 / LAUNCHES for begin, end in pairwise(edges))
    return statistics.median(times), times[int(0.95 * (REPLAYS - 1))]


def dense_attention(query: Tensor, key: Tensor, value: Tensor, count: int) -> Tensor:
    """Attention of cuDNN over `count` equal sequences: `[count, heads, rows / count, head_size]`."""
    dense = (tensor.unflatten(0, (count, -1)).transpose(1, 2) for tensor in (query, key, value))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(*dense)


def candidates(
    query: Tensor, key: Tensor, value: Tensor, lengths: list[int]
) -> Iterator[tuple[str, AttentionTiles | None, Callable[[], Tensor]]]:
    """Name, block sizes and launch."""
    padded = len(query) > sum(lengths)
    empty = [0] * EMPTY_SLOTS if padded else []
    bounds = torch.tensor([0, *lengths, *empty]).cumsum(0).to("cuda", torch.int32)
    longest = max(lengths)
    for tiles in dict.fromkeys([*TILES, attention_tiles(*query.shape, query.dtype)]):
        name = f"packed {tiles.block_rows}x{tiles.block_columns} w{tiles.warps} s{tiles.stages} r{tiles.registers or 0}"
        yield name, tiles, partial(packed_attention, query, key, value, bounds, longest, tiles=tiles)
    if padded:
        return
    yield "torch varlen_attn", None, partial(varlen_attn, query, key, value, bounds, bounds, longest, longest)
    if len(set(lengths)) == 1:
        yield "cuDNN SDPA, dense", None, partial(dense_attention, query, key, value, len(lengths))


def measure(tower: str, shape: str) -> Iterator[Measurement]:
    """Check and time every candidate on one shape."""
    heads, head_size = TOWERS[tower]
    lengths = LENGTHS[shape]
    generator = torch.Generator("cuda").manual_seed(0)
    rows = PADDED_ROWS.get(shape, sum(lengths))
    fused = torch.randn(rows, 3 * heads * head_size, device="cuda", generator=generator).bfloat16()
    fused[sum(lengths) :] = float("nan")
    query, key, value = (part.unflatten(1, (heads, head_size)) for part in fused.chunk(3, dim=1))
    ends = [[tensor[: lengths[0]], tensor[: sum(lengths)][-lengths[-1] :]] for tensor in (query, key, value)]
    exact = torch.cat([reference(*sequence) for sequence in zip(*ends, strict=True)])
    operations = 4 * heads * head_size * sum(length**2 for length in lengths)
    for name, tiles, launch in candidates(query, key, value, lengths):
        chosen = tiles == attention_tiles(*query.shape, query.dtype)
        try:
            error = ((as_rows(launch(), lengths) - exact).norm() / exact.norm()).item()
            if not error <= LARGEST_ERROR:
                raise SystemExit(f"{tower} {shape}: {name} is wrong: relative error {error:.1e}")
            times_us = time_us(launch)
        except RuntimeError as refusal:
            if chosen:
                raise
            print(f"{tower} {shape}: {name} left out: {str(refusal).splitlines()[0]}")
            continue
        tflops = operations / times_us[0] * 1e-6
        yield Measurement(tower, shape, *query.shape, name, tiles, chosen, *times_us, tflops, error)


def as_rows(out: Tensor, lengths: list[int]) -> Tensor:
    """The first and the last sequence of a candidate's output, `[rows, heads * head_size]` in float64."""
    packed = (out.transpose(1, 2).flatten(0, 1) if out.dim() == 4 else out).flatten(1)
    return torch.cat([packed[: lengths[0]], packed[: sum(lengths)][-lengths[-1] :]]).double()


def reference(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One sequence in float64, from the twin."""
    bounds = torch.tensor([0, len(query)])
    return packed_attention_reference(query.double(), key.double(), value.double(), bounds)


def main() -> None:
    """Print the ceilings and the table, write the JSON and end with its summary on one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the JSON file to write")
    results = parser.parse_args().results
    need_gpu()
    limits = ceilings()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, at most {limits}")
    measurements = []
    for tower in TOWERS:
        for shape in LENGTHS:
            for row in measure(tower, shape):
                measurements.append(row)
                print(
                    f"{tower:7} {shape:13} {row.candidate:25}{'*' if row.chosen else ' '} {row.median_us:8.1f} µs "
                    f"(p95 {row.p95_us:7.1f}) {row.tflops:5.0f} TFLOP/s  error {row.relative_error:.1e}"
                )
    measured = {"ceilings": limits, "measurements": [asdict(row) for row in measurements]}
    write_report(results, "How long does one launch of packed attention take, by block sizes?", measured)
    summary = {f"{row.tower} {row.shape}": round(row.median_us, 1) for row in measurements if row.chosen}
    print(json.dumps({"benchmark": "attention", "gpu": torch.cuda.get_device_name(), "chosen_us": summary}))


if __name__ == "__main__":
    main()

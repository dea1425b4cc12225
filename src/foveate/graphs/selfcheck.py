"""The start-up check of a graph: does it give the right bits whatever lies in its buffers?

Each graph replays batches that differ in contents, size and segmentation, in turn, with NaN put into every float
buffer in between, and the shapes of the batch before left in the others:

1. the same batch gives the same bits, whatever ran before and whatever lies in the padding;
2. a replay gives the bits of the same kernels launched one by one on the same padded buffers;
3. rows of no tile are zeros;
4. against the unpadded eager forward the error of every tile is one of rounding.
"""

from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from foveate.graphs.backends import Work
from foveate.graphs.buffers import StaticBuffers
from foveate.graphs.protocol import Batch, GraphCapacity, SupportsEncoderCudaGraph

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative norm of the difference to the unpadded forward, tile by tile. It finds wrong bounds and stale
rows, which are far beyond; how close the two really are is a matter of tests."""


@dataclass(frozen=True)
class GraphUnderTest(Generic[Batch]):
    """One graph and how to run it."""

    model: SupportsEncoderCudaGraph[Batch]
    buffers: StaticBuffers
    capacity: GraphCapacity
    replay: Work
    """Runs the recorded work."""
    work: Work
    """Runs the same work, kernel by kernel."""


def find_fault(graph: GraphUnderTest[Batch]) -> str | None:
    """Check one graph; returns what is wrong with it, or None."""
    half, long_tiles, short_tiles = _samples(graph)
    first = _run(graph, half, graph.replay)
    long = _run(graph, long_tiles, graph.replay)
    short = _run(graph, short_tiles, graph.replay)
    again = _run(graph, half, graph.replay)
    one_by_one = _run(graph, half, graph.work)
    if not _same_bits(first, again):
        return "the same tiles gave other bits after a larger batch: a buffer is stale or padding is read"
    if not _same_bits(again, one_by_one):
        return "a replay differs from the same kernels launched one by one"
    for batch, padded in ((half, first), (long_tiles, long), (short_tiles, short)):
        fault = _compare(graph, batch, padded)
        if fault:
            return fault
    return None


def _samples(graph: GraphUnderTest[Batch]) -> tuple[Batch, Batch, Batch]:
    # Seeds other than the capture's: a graph that replays what it was captured with must not pass. The first sample is
    # half the budget, but at least the smallest tile, so that there is padding wherever the model can leave any.
    model, capacity = graph.model, graph.capacity
    half = max(capacity.tokens // 2, model.get_encoder_cudagraph_budget_range().smallest)
    return (
        model.prepare_encoder_cudagraph_capture_inputs(replace(capacity, tokens=half), seed=1),
        model.prepare_encoder_cudagraph_capture_inputs(capacity, seed=2),
        model.prepare_encoder_cudagraph_capture_inputs(capacity, seed=3, short_tiles=True),
    )


def _run(graph: GraphUnderTest[Batch], batch: Batch, run: Work) -> Tensor:
    graph.buffers.poison()
    graph.buffers.load(graph.capacity, graph.model.prepare_encoder_cudagraph_replay_buffers(batch))
    run()
    return graph.buffers.output(graph.capacity.tokens).clone()


def _compare(graph: GraphUnderTest[Batch], batch: Batch, padded: Tensor) -> str | None:
    specs = graph.model.get_encoder_cudagraph_item_specs(batch)
    tokens = [tile.output_tokens for spec in specs for tile in spec.tiles]
    exact = graph.model.encoder_eager_forward(batch)
    if exact.shape[0] != sum(tokens):
        return f"the eager forward gives {exact.shape[0]} rows, the item specs say {sum(tokens)}"
    real, padding = padded[: exact.shape[0]], padded[exact.shape[0] :]
    if not bool((padding == 0).all()):
        return "rows that belong to no tile are not zeros"
    bound = TOLERANCE.get(exact.dtype, 5e-2)
    differences, sizes = _norms(real.float() - exact.float(), tokens), _norms(exact.float(), tokens)
    for difference, size in zip(differences, sizes, strict=True):
        if not difference <= bound * size:
            return (
                f"a tile differs from the unpadded forward by {difference:.2e} of {size:.2e}; at most {bound:.0e} of it"
                " is rounding"
            )
    return None


def _norms(rows: Tensor, tokens: list[int]) -> list[float]:
    """Return the norm of each tile's rows, read from the device at once."""
    squares = [part.sum() for part in rows.square().sum(-1).split(tokens)]
    return torch.stack(squares).sqrt().tolist() if squares else []


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))

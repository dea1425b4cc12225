"""The start-up check of a graph: does it give the right bits whatever lies in its buffers?

Each graph replays two batches that differ in size and segmentation, in turn, with NaN put into every buffer in
between:

1. the same batch gives the same bits, whatever ran before and whatever lies in the padding;
2. a replay gives the bits of the same kernels launched one by one on the same padded buffers;
3. rows of no tile are zeros;
4. against the unpadded eager forward the error is one of rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from foveate.graphs.buffers import StaticBuffers
from foveate.graphs.protocol import Batch, GraphCapacity, SupportsEncoderCudaGraph

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative norm of the difference to the unpadded forward. It finds wrong bounds and stale rows, which are
far beyond; how close the two really are is a matter of tests."""


@dataclass(frozen=True)
class GraphUnderTest(Generic[Batch]):
    """One graph and how to run it."""

    model: SupportsEncoderCudaGraph[Batch]
    buffers: StaticBuffers
    capacity: GraphCapacity
    replay: Callable[[], None]
    """Runs the recorded work."""
    work: Callable[[], None]
    """Runs the same work, kernel by kernel."""


def find_fault(graph: GraphUnderTest[Batch]) -> str | None:
    """Check one graph; returns what is wrong with it, or None."""
    small, full = (_sample(graph, tokens) for tokens in (graph.capacity.tokens // 2, graph.capacity.tokens))
    first = _run(graph, small, graph.replay)
    whole = _run(graph, full, graph.replay)
    again = _run(graph, small, graph.replay)
    one_by_one = _run(graph, small, graph.work)
    if not _same_bits(first, again):
        return "the same tiles gave other bits after a larger batch: a buffer is stale or padding is read"
    if not _same_bits(again, one_by_one):
        return "a replay differs from the same kernels launched one by one"
    for batch, padded in ((small, first), (full, whole)):
        fault = _compare(graph, batch, padded)
        if fault:
            return fault
    return None


def _sample(graph: GraphUnderTest[Batch], tokens: int) -> Batch:
    # At least what the smallest tile needs: the model fills a capacity as far as its tiles allow.
    capacity = graph.capacity
    smallest = capacity.tokens // capacity.tiles
    part = GraphCapacity(max(tokens, smallest), capacity.tiles, capacity.items, capacity.frames)
    return graph.model.prepare_encoder_cudagraph_capture_inputs(part)


def _run(graph: GraphUnderTest[Batch], batch: Batch, run: Callable[[], None]) -> Tensor:
    graph.buffers.poison()
    graph.buffers.load(graph.capacity, graph.model.prepare_encoder_cudagraph_replay_buffers(batch))
    run()
    return graph.buffers.output(graph.capacity.tokens).clone()


def _compare(graph: GraphUnderTest[Batch], batch: Batch, padded: Tensor) -> str | None:
    exact = graph.model.encoder_eager_forward(batch)
    real, padding = padded[: exact.shape[0]], padded[exact.shape[0] :]
    if padding.numel() and not bool((padding == 0).all()):
        return "rows that belong to no tile are not zeros"
    error = float((real.float() - exact.float()).norm() / exact.float().norm())
    bound = TOLERANCE.get(exact.dtype, 5e-2)
    if not error <= bound:
        return f"the relative error against the unpadded forward is {error:.2e}; at most {bound:.0e} is rounding"
    return None


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))

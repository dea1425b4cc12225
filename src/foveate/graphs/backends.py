"""How a fixed piece of work is recorded once and run many times: as a CUDA graph, or by calling it again."""

from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]


class GraphBackend(Protocol):
    """Records work that always uses the same memory."""

    name: str

    def capture(self, work: Work) -> Work:
        """Record `work` and return what runs it again on the current stream."""


class EagerBackend:
    """Runs the work again, kernel by kernel. What there is without CUDA: all but the capture itself is the same."""

    name = "eager"

    def capture(self, work: Work) -> Work:
        """Run once, as a capture would, and return the work itself."""
        work()
        return work


class CudaGraphBackend:
    """Captures CUDA graphs into one memory pool, on a stream that nothing else uses.

    The stream is its own because cuBLAS keeps a workspace for every stream: graphs captured on one stream that replay
    at the same time as graphs of another user of it would share that workspace and race. Captured graphs are kept as
    long as this is.
    """

    name = "cuda_graph"
    WARM_UPS = 1
    """Runs before the capture: it compiles kernels and makes workspaces, which must not happen inside."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, work: Work) -> Work:
        """Warm up, capture and return the replay."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(self.WARM_UPS):
                work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._graphs.append(graph)
        return graph.replay


def default_backend(device: torch.device) -> GraphBackend:
    """Return CUDA graphs on a CUDA device, the eager backend elsewhere."""
    return CudaGraphBackend(device) if device.type == "cuda" else EagerBackend()

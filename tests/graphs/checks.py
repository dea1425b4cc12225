"""What the tests of the encoder graphs ask of results."""

from typing import Any

import torch
from hypothesis import settings
from torch import Tensor

from foveate.graphs import (
    CostStore,
    EncoderCosts,
    EncoderCudaGraphManager,
    EncoderGraphSettings,
    GraphBackend,
    Work,
)
from foveate.graphs.protocol import SupportsEncoderCudaGraph

CPU = torch.device("cpu")
MANY = settings(max_examples=60, deadline=None)
FEW = settings(max_examples=12, deadline=None)


def captured(
    model: SupportsEncoderCudaGraph[Any],
    settings: EncoderGraphSettings,
    *,
    backend: GraphBackend | None = None,
    costs: EncoderCosts | None = None,
    cost_store: CostStore | None = None,
    strict: bool = True,
) -> EncoderCudaGraphManager[Any]:
    """Capture a model's graphs on the CPU."""
    manager = EncoderCudaGraphManager(
        model, CPU, settings, backend=backend, costs=costs, cost_store=cost_store, strict=strict
    )
    manager.capture()
    return manager


class RecordingBackend:
    """Runs the work again, and remembers what was captured and replayed; graphs are numbered from 0, in order."""

    name = "recording"

    def __init__(self) -> None:
        self.captures = 0
        self.replays: list[int] = []

    def capture(self, work: Work) -> Work:
        number = self.captures
        self.captures += 1
        work()

        def replay() -> None:
            self.replays.append(number)
            work()

        return replay


def joined(features: list[Tensor]) -> Tensor:
    return torch.cat(features)


def same_bits(a: list[Tensor], b: list[Tensor]) -> bool:
    pairs = zip(a, b, strict=True)
    return all(torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)) for x, y in pairs)


def poison(manager: EncoderCudaGraphManager[Any]) -> None:
    """Put NaN into every static buffer that holds floats."""
    manager._buffers.poison()


def error(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact.double()).norm())


def rounding(exact: Tensor, dtype: torch.dtype) -> float:
    """The size of one rounding of all of a result."""
    return torch.finfo(dtype).eps * float(exact.double().norm())

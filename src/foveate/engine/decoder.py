"""The decode step: one token further for every running sequence, over fixed buffers.

A step of each size is recorded once: captured as a CUDA graph, or just called where there is no CUDA. What changes from
step to step is which slots take part; all else is on the device already (`slots.py`). So the next step can be launched
before the host has seen the tokens of the last one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from foveate.engine.sampler import SamplingKind
from foveate.engine.slots import SlotTable
from foveate.kernels.availability import HAS_TRITON, fault
from foveate.models.caches import CacheTensors
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.transfer import to_device

Work = Callable[[], None]
Progress = Callable[[int, int], None]


class StepBackend(Protocol):
    """Records work that always uses the same memory (`foveate.graphs.backends.CudaGraphBackend` is one)."""

    name: str

    def capture(self, work: Work) -> Work:
        """Record `work` and return what runs it again on the current stream."""


class DirectBackend:
    """Calls the work itself, kernel by kernel."""

    name = "direct"

    def capture(self, work: Work) -> Work:
        """Return the work."""
        return work


def step_backend(device: torch.device) -> StepBackend:
    """Return CUDA graphs on a CUDA device, with a stream and a pool of their own, and direct calls elsewhere.

    Also where Triton's kernels do not run: the twin of the attention waits for the device, which no graph can.
    """
    if device.type != "cuda" or not HAS_TRITON or fault():
        return DirectBackend()
    try:  # The engine works without the graph runtime, too.
        from foveate.graphs.backends import CudaGraphBackend
    except ModuleNotFoundError:
        return DirectBackend()
    return CudaGraphBackend(device)


def step_sizes(most: int) -> list[int]:
    """Return the batch sizes that steps are recorded for: 1, 2, 4, 8, then every eighth, up to `most`."""
    return sorted({*(size for size in (1, 2, 4) if size < most), *range(8, most, 8), most})


class Decoder:
    """Runs decode steps. Invariant: nothing is recorded after `record`, and a step allocates nothing on the device."""

    def __init__(self, model: Lfm2VlModel, caches: CacheTensors, slots: SlotTable, backend: StepBackend) -> None:
        self._model, self._caches, self._slots = model, caches, slots
        self.backend = backend
        self._sizes = step_sizes(slots.dummy)
        self._rows = torch.full((slots.dummy,), slots.dummy, dtype=torch.int64, device=model.device)
        self._output = torch.zeros(slots.dummy, dtype=torch.int64, device=model.device)
        self._loaded: list[int] = []
        self._steps: dict[tuple[int, SamplingKind], Work] = {}

    @torch.inference_mode()
    def record(self, progress: Progress | None = None) -> None:
        """Record a step of every size and kind, largest first, on padding alone."""
        keys = [(size, kind) for size in reversed(self._sizes) for kind in SamplingKind]
        for number, (size, kind) in enumerate(keys, 1):
            self._steps[size, kind] = self.backend.capture(partial(self._step, size, kind))
            if progress:
                progress(number, len(keys))

    @torch.inference_mode()
    def launch(self, slots: Sequence[int], kind: SamplingKind) -> Tensor:
        """Run one token further in each of these slots.

        Returns the new tokens, `[len(slots)]` on the device, in a buffer that the next launch writes over; -1 stands
        for logits that are not numbers.
        """
        size = next(size for size in self._sizes if size >= len(slots))
        rows = [*slots, *[self._slots.dummy] * (size - len(slots))]
        if rows != self._loaded:
            self._rows[:size].copy_(to_device(torch.tensor(rows), self._rows.device))
            self._loaded = rows
        self._steps[size, kind]()
        return self._output[: len(slots)]

    def _step(self, size: int, kind: SamplingKind) -> None:
        rows, language = self._rows[:size], self._model.language
        batch = self._slots.decode_batch(rows)
        hidden = language(language.embedding(self._slots.tokens[rows]), batch, self._caches)
        tokens = self._slots.sample(kind, language.logits(hidden), rows, batch.positions + 1)
        self._output[:size].copy_(tokens)

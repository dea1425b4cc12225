"""The memory that captured graphs read and write: one set of buffers, shared by all budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.graphs.protocol import BufferSpec, EncoderCudaGraphConfig, GraphCapacity

STAGING_SLOTS = 2
"""Pinned copies in flight: while the device reads one, the host fills the other."""


class StaticBuffers:
    """Input buffers and the output buffer at fixed addresses, as large as the largest graph needs.

    Invariants: a smaller graph uses the first rows of each; nothing returned to a caller is a view of these.
    """

    def __init__(
        self, config: EncoderCudaGraphConfig, capacities: Sequence[GraphCapacity], device: torch.device
    ) -> None:
        self._config = config
        largest = {spec.key: max(_num_rows(spec, each) for each in capacities) for spec in config.buffers}
        self._inputs = {
            spec.key: torch.zeros((largest[spec.key], *spec.row_shape), dtype=spec.dtype, device=device)
            for spec in config.buffers
        }
        self._views = {capacity: self._views_of(capacity) for capacity in capacities}
        tokens = max(capacity.tokens for capacity in capacities)
        self._output = torch.zeros((tokens, config.output_width), dtype=config.output_dtype, device=device)
        self._staging = PinnedRing(self._inputs) if device.type == "cuda" else None

    @property
    def num_bytes(self) -> int:
        """Bytes on the device."""
        return sum(buffer.nbytes for buffer in self._inputs.values()) + self._output.nbytes

    def inputs(self, capacity: GraphCapacity) -> dict[str, Tensor]:
        """Return the input buffers as the graph of `capacity` sees them."""
        return dict(self._views[capacity])

    def _views_of(self, capacity: GraphCapacity) -> dict[str, Tensor]:
        return {spec.key: self._inputs[spec.key][: _num_rows(spec, capacity)] for spec in self._config.buffers}

    def output(self, tokens: int) -> Tensor:
        """Return the first rows of the output buffer, `[tokens, output_width]`."""
        return self._output[:tokens]

    def load(self, capacity: GraphCapacity, values: Mapping[str, Tensor]) -> None:
        """Copy a batch's rows in, on the current stream; never waits for the device.

        Raises ValueError, before anything is copied, when there are more rows than fit into `capacity`.
        """
        buffers = self._views[capacity]
        for key, buffer in buffers.items():
            given, most = values[key].shape[0], buffer.shape[0]
            if given > most:
                raise ValueError(
                    f"{given} rows for the buffer {key!r}; the graph of {capacity.tokens} tokens holds {most}"
                )
        slot: PinnedSlot | None = None
        for spec in self._config.buffers:
            buffer, rows = buffers[spec.key], values[spec.key]
            if self._staging is not None and rows.is_cpu:
                slot = slot or self._staging.acquire()
                _load_pinned(buffer, rows, slot.tensors[spec.key], spec)
            else:
                _load_rows(buffer, rows, spec)
        if slot is not None:
            slot.event.record()

    def poison(self) -> None:
        """Fill every float buffer with NaN: what a check must survive.

        The others keep what the last batch left in them, which is the worst that can lie there: shapes of tiles that
        are gone.
        """
        for tensor in (*self._inputs.values(), self._output):
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)


@dataclass(frozen=True)
class PinnedSlot:
    """Page-locked copies of all input buffers, and the event after which they may be written again."""

    tensors: dict[str, Tensor]
    event: torch.cuda.Event


class PinnedRing:
    """Page-locked memory used in turn, so that a copy to the device need not be waited for."""

    def __init__(self, buffers: Mapping[str, Tensor]) -> None:
        self._slots = [
            PinnedSlot(
                {key: torch.empty_like(buffer, device="cpu", pin_memory=True) for key, buffer in buffers.items()},
                torch.cuda.Event(),
            )
            for _ in range(STAGING_SLOTS)
        ]
        self._next = 0

    def acquire(self) -> PinnedSlot:
        """Return the slot that was used longest ago, once the device has read it: the one place that may wait."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        slot.event.synchronize()
        return slot


def _load_rows(buffer: Tensor, rows: Tensor, spec: BufferSpec) -> None:
    count = rows.shape[0]
    buffer.narrow(0, 0, count).copy_(rows, non_blocking=True)
    if spec.padding == "zero" and count < buffer.shape[0]:
        buffer[count:].zero_()


def _load_pinned(buffer: Tensor, rows: Tensor, pinned: Tensor, spec: BufferSpec) -> None:
    # What crosses the bus is of the buffer's own type, and goes in one piece: its padding has been zeroed on the host.
    count = buffer.shape[0] if spec.padding == "zero" else rows.shape[0]
    staged = pinned.narrow(0, 0, count)
    _load_rows(staged, rows, spec)
    buffer.narrow(0, 0, count).copy_(staged, non_blocking=True)


def _num_rows(spec: BufferSpec, capacity: GraphCapacity) -> int:
    return capacity.tiles if spec.rows == "tile" else capacity.input_rows

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
        self._largest = {spec.key: max(_num_rows(spec, each) for each in capacities) for spec in config.buffers}
        self._inputs = {
            spec.key: torch.zeros((self._largest[spec.key], *spec.row_shape), dtype=spec.dtype, device=device)
            for spec in config.buffers
        }
        tokens = max(capacity.tokens for capacity in capacities)
        self._output = torch.zeros((tokens, config.output_width), dtype=config.output_dtype, device=device)
        self._staging = PinnedRing(self._inputs) if device.type == "cuda" else None

    @property
    def num_bytes(self) -> int:
        """Bytes on the device."""
        return sum(buffer.nbytes for buffer in self._inputs.values()) + self._output.nbytes

    def inputs(self, capacity: GraphCapacity) -> dict[str, Tensor]:
        """Return the input buffers as the graph of `capacity` sees them."""
        return {spec.key: self._inputs[spec.key][: _num_rows(spec, capacity)] for spec in self._config.buffers}

    def output(self, tokens: int) -> Tensor:
        """Return the first rows of the output buffer, `[tokens, output_width]`."""
        return self._output[:tokens]

    def load(self, capacity: GraphCapacity, values: Mapping[str, Tensor]) -> None:
        """Copy a batch's rows in, on the current stream; never waits for the device.

        Raises ValueError, before anything is copied, when there are more rows than fit into `capacity`.
        """
        for spec in self._config.buffers:
            given, most = values[spec.key].shape[0], _num_rows(spec, capacity)
            if given > most:
                raise ValueError(
                    f"{given} rows for the buffer {spec.key!r}; the graph of {capacity.tokens} tokens holds {most}"
                )
        slot = self._staging.acquire() if self._staging else None
        for spec in self._config.buffers:
            buffer, rows = self.inputs(capacity)[spec.key], values[spec.key]
            if slot is not None and rows.device.type == "cpu":
                _load_pinned(buffer, rows, slot.tensors[spec.key], spec)
            else:
                buffer[: rows.shape[0]].copy_(rows, non_blocking=True)
                if spec.padding == "zero":
                    buffer[rows.shape[0] :].zero_()
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


def _load_pinned(buffer: Tensor, rows: Tensor, pinned: Tensor, spec: BufferSpec) -> None:
    count = rows.shape[0]
    pinned[:count].copy_(rows)  # converts the type on the host: fewer bytes cross the bus
    if spec.padding == "zero":
        count = buffer.shape[0]
        pinned[rows.shape[0] : count].zero_()
    buffer[:count].copy_(pinned[:count], non_blocking=True)


def _num_rows(spec: BufferSpec, capacity: GraphCapacity) -> int:
    return capacity.tiles if spec.rows == "tile" else capacity.input_rows

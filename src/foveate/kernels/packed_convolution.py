"""LFM2's gated short convolution over packed new rows, with the states updated in place, for prefills.

Bounds and slots are on the device, so a captured prefill replays with whatever they hold by then.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from foveate.kernels.availability import launch_options, runs_triton
from foveate.kernels.short_convolution import convolution_index, short_convolution

__all__ = ["packed_convolution", "packed_convolution_reference", "packed_convolution_triton"]

BLOCK_ROWS = 16
"""Rows of one program: enough that most of the rows a tap looks back to are its own."""

BLOCK_CHANNELS = 128
"""Channels of one program: with a width of 1024, 281 rows are 144 programs, one for each multiprocessor."""

STATE_CHANNELS = 256
"""Channels of one program that replaces a state."""


def packed_convolution(
    gates: Tensor, states: Tensor, slots: Tensor, bounds: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Gate, convolve and gate the new rows of each sequence: `after * convolution(before * content)`.

    gates: `[tokens, 3 * width]`: before, after, content, the new rows of all sequences one behind the other. states:
    `[slots, taps - 1, width]`, the last inputs of each convolution, oldest first; moved on by the new rows. slots:
    `[sequences]` int64, the state of each sequence; no two that have new rows share one. bounds: `[sequences + 1]`
    int32; sequence `s` has the rows `bounds[s]` to `bounds[s + 1]`. Bounds begin with 0 and never fall; an unused
    sequence repeats one, and its state is left alone. weight: `[width, taps]`, oldest tap first. bias: `[width]` or
    None.

    Returns `[tokens, width]`. Rows behind the last bound are padding: nothing is read there and zeros are written. The
    input is rounded before the sum, and the sum, taken in float32, before the second gate.
    """
    if runs_triton(gates, states, weight):
        return packed_convolution_triton(gates, states, slots, bounds, weight, bias)
    return packed_convolution_reference(gates, states, slots, bounds, weight, bias)


def packed_convolution_reference(
    gates: Tensor, states: Tensor, slots: Tensor, bounds: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """What `packed_convolution` computes, in plain torch.

    The bounds are read on the host: on a GPU this waits for the device and cannot be captured.
    """
    width, taps = weight.shape
    lengths = [end - begin for begin, end in pairwise(bounds.tolist())]
    used = [sequence for sequence, length in enumerate(lengths) if length]
    if not used:
        return gates.new_zeros(len(gates), width)
    own = slots[torch.tensor(used, device=slots.device)]
    index = convolution_index([lengths[sequence] for sequence in used], taps, gates.device)
    before, after, content = gates[: sum(lengths)].chunk(3, -1)
    mixed, new = short_convolution(before * content, states.index_select(0, own), weight, bias, index)
    states.index_copy_(0, own, new)
    return F.pad(after * mixed, (0, 0, 0, len(gates) - sum(lengths)))


def packed_convolution_triton(
    gates: Tensor, states: Tensor, slots: Tensor, bounds: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """`packed_convolution` in two launches that read nothing back to the host; their grids depend on shapes alone.

    The first computes the results, the second replaces the states, which by then nobody else reads. Raises ValueError
    for shapes, types or layouts other than those of `packed_convolution`, contiguous.
    """
    from foveate.kernels.packed_convolution_kernel import next_states_kernel, packed_convolution_kernel
    from foveate.kernels.packed_rows_kernel import bound_lanes

    _check(gates, states, slots, bounds, weight, bias)
    rows, sequences, (width, taps) = len(gates), len(slots), weight.shape
    out = gates.new_empty(rows, width)
    if out.numel() == 0:
        return out
    with torch.cuda.device_of(gates):
        packed_convolution_kernel[rows // BLOCK_ROWS + sequences + 1, -(-width // BLOCK_CHANNELS)](
            gates,
            states,
            slots,
            bounds,
            weight,
            bias,
            out,
            rows,
            sequences,
            width=width,
            taps=taps,
            lanes=bound_lanes(sequences),
            block_rows=BLOCK_ROWS,
            block_channels=BLOCK_CHANNELS,
            num_warps=4,
            **launch_options(gates.device, rows),
        )
        if sequences and taps > 1:
            next_states_kernel[sequences, -(-width // STATE_CHANNELS)](
                gates,
                states,
                slots,
                bounds,
                width=width,
                taps=taps,
                block_channels=STATE_CHANNELS,
                num_warps=4,
                **launch_options(gates.device, rows),
            )
    return out


def _check(gates: Tensor, states: Tensor, slots: Tensor, bounds: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raises ValueError for what the kernels do not take."""
    if weight.dim() != 2 or not weight.is_contiguous():
        raise ValueError(
            f"weight must be [width, taps], contiguous: got {list(weight.shape)}, strides {weight.stride()}."
        )
    width, taps = weight.shape
    tensors = {
        "gates": (gates, (gates.shape[0], 3 * width)),
        "states": (states, (states.shape[0], taps - 1, width)),
        "slots": (slots, (slots.numel(),)),
        "bounds": (bounds, (slots.numel() + 1,)),
    }
    if bias is not None:
        tensors["bias"] = (bias, (width,))
    for name, (tensor, shape) in tensors.items():
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be {list(shape)}, contiguous: got {list(tensor.shape)}, strides {tensor.stride()}."
            )
    if gates.dtype != states.dtype:
        raise ValueError(f"gates and states must be of one type: got {gates.dtype}, {states.dtype}.")
    if slots.dtype != torch.int64 or bounds.dtype != torch.int32:
        raise ValueError(f"slots must be int64, bounds int32: got {slots.dtype}, {bounds.dtype}.")
    devices = {tensor.device for tensor in (gates, states, slots, bounds, weight)}
    if len(devices) > 1:
        raise ValueError(f"All tensors must be on one device: got {sorted(map(str, devices))}.")

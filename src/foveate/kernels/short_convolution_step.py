"""One decode step of LFM2's gated short convolution, with the states updated in place."""

import torch
from torch import Tensor

from foveate.kernels.availability import launch_options, runs_triton

__all__ = ["short_convolution_step", "short_convolution_step_reference", "short_convolution_step_triton"]

BLOCK_CHANNELS = 256
"""Channels of one program: with a width of 1024, a batch of one still occupies four multiprocessors."""


def short_convolution_step(gates: Tensor, states: Tensor, slots: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`short_convolution_step_triton` on a GPU with Triton, `short_convolution_step_reference` elsewhere."""
    if runs_triton(gates, states, weight):
        return short_convolution_step_triton(gates, states, slots, weight, bias)
    return short_convolution_step_reference(gates, states, slots, weight, bias)


def short_convolution_step_reference(
    gates: Tensor, states: Tensor, slots: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Gate, convolve and gate one new row of each sequence: `after * convolution(before * content)`.

    gates: `[sequences, 3 * width]`, contiguous: before, after, content. states: `[slots, taps - 1, width]`, contiguous,
    the last inputs of each convolution, oldest first; moved on by one row. slots: `[sequences]` int64, the state of
    each sequence; sequences that share a slot spoil its state, not each other. weight: `[width, taps]`, oldest tap
    first. bias: `[width]` or None. Returns `[sequences, width]`.

    The input is rounded before the sum, and the sum, taken in float32, before the second gate.
    """
    before, after, content = gates.chunk(3, -1)
    window = torch.cat([states.index_select(0, slots), (before * content)[:, None]], 1)  # [sequences, taps, width]
    mixed = (window.float() * weight.t().float()).sum(1)
    if bias is not None:
        mixed = mixed + bias.float()
    states.index_copy_(0, slots, window[:, 1:])
    return after * mixed.to(gates.dtype)


def short_convolution_step_triton(
    gates: Tensor, states: Tensor, slots: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """What `short_convolution_step_reference` computes, in one launch, with the same roundings.

    Sequences that share a slot may read each other's new rows there. Raises ValueError for other shapes or layouts.
    """
    from foveate.kernels.short_convolution_step_kernel import short_convolution_step_kernel

    width, taps = weight.shape
    shapes = {"gates": (gates, (len(slots), 3 * width)), "states": (states, (states.shape[0], taps - 1, width))}
    for name, (tensor, shape) in shapes.items():
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be {list(shape)}, contiguous: got {list(tensor.shape)}, strides {tensor.stride()}."
            )
    if not weight.is_contiguous() or not slots.is_contiguous() or slots.is_floating_point():
        raise ValueError(f"weight and slots must be contiguous, slots integers: got {slots.dtype}.")
    out = gates.new_empty(len(slots), width)
    if len(slots):
        with torch.cuda.device_of(gates):
            short_convolution_step_kernel[len(slots), -(-width // BLOCK_CHANNELS)](
                gates,
                states,
                slots,
                weight,
                bias,
                out,
                width=width,
                taps=taps,
                block=BLOCK_CHANNELS,
                num_warps=4,
                **launch_options(gates.device, len(slots)),
            )
    return out

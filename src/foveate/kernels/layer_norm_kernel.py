"""The Triton program behind `foveate.kernels.layer_norm`, and what it shares with `foveate.kernels.fp8_kernel`.

A program has its row in registers, in two pieces: `main` channels, a power of two, and the rest of them, masked up to
the next. One block for all of 1152 or 4304 channels would leave almost every second thread without work.
"""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = ["layer_norm_kernel", "load_pieces", "normed", "row_pieces", "store_pieces"]


@triton.jit
def row_pieces(width: tl.constexpr, main: tl.constexpr, rest: tl.constexpr):
    """The channels of both pieces, and which of the second exist. Eight neighbours go to one thread: 16 bytes of a
    16-bit type, whatever else is read and written beside it, so that nothing has to change threads."""
    second = main + tl.max_contiguous(tl.arange(0, rest), 8)
    return tl.max_contiguous(tl.arange(0, main), 8), second, second < width


@triton.jit
def load_pieces(source, first, second, mask):
    """Both pieces in float32, 0 where there is nothing."""
    return tl.load(source + first).to(tl.float32), tl.load(source + second, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_pieces(target, low, high, first, second, mask) -> None:
    """Stores both pieces, rounded to the type of the target."""
    tl.store(target + first, low.to(target.dtype.element_ty))
    tl.store(target + second, high.to(target.dtype.element_ty), mask=mask)


@triton.jit
def normed(low, high, offset, weights, biases, eps, first, second, mask, width: tl.constexpr):
    """The layer norm of a row in two pieces and what it lacks; in the second, channels beyond the width are 0.

    `weights` and `biases` are two pieces each; `offset` is read here.
    """
    if offset is not None:
        low_offset, high_offset = load_pieces(offset, first, second, mask)
        low += low_offset
        high += high_offset
    mean = (tl.sum(low, 0) + tl.sum(high, 0)) / width
    low, high = low - mean, tl.where(mask, high - mean, 0.0)
    variance = (tl.sum(low * low, 0) + tl.sum(high * high, 0)) / width
    scale = tl.rsqrt(variance + eps)
    return low * scale * weights[0] + biases[0], high * scale * weights[1] + biases[1]


@triton.jit
def layer_norm_kernel(
    hidden,
    offset,
    weight,
    bias,
    out,
    eps,
    width: tl.constexpr,
    main: tl.constexpr,
    rest: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """Normalise one row of `width` channels, read once and held in registers.

    Weights and biases are on their way before the row is there; the offset need not be a constant.
    """
    if overlaps:
        gdc_launch_dependents()
    # Rows of a large batch times their width pass 2**31.
    start = tl.program_id(0).to(tl.int64) * width
    first, second, mask = row_pieces(width, main, rest)
    weights = load_pieces(weight, first, second, mask)
    biases = load_pieces(bias, first, second, mask)
    if overlaps:
        gdc_wait()
    low, high = load_pieces(hidden + start, first, second, mask)
    low, high = normed(low, high, offset, weights, biases, eps, first, second, mask, width)
    store_pieces(out + start, low, high, first, second, mask)

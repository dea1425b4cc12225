"""The Triton programs behind `foveate.kernels.fp8`: each ends with a row in float8 and its scale."""

# Triton reads these functions as source: their arguments are pointers and compile-time numbers, which Python's types do
# not describe.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: ANN001, ANN202

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from foveate.kernels.layer_norm_kernel import load_pieces, normed, row_pieces, store_pieces

__all__ = ["gelu_fp8_kernel", "layer_norm_fp8_kernel", "quantise_kernel"]


@triton.jit
def _store_quantised(low, high, out, scales, row, first, second, mask, width: tl.constexpr, smallest, step):
    """Stores a row in two pieces (float32, 0 where masked) in float8, and the scale by which it was divided.

    It is multiplied by the reciprocal of the scale: one division a row, as the twin has it.
    """
    scale = tl.maximum(tl.maximum(tl.max(tl.abs(low), 0), tl.max(tl.abs(high), 0)), smallest) * step
    tl.store(scales + row, scale)
    inverse = tl.div_rn(1.0, scale)
    store_pieces(out + row * width, low * inverse, high * inverse, first, second, mask)


@triton.jit
def _gelu(values):
    """The GELU in the tanh form: 0.5 * (1 + tanh(x)) is 1 / (1 + exp(-2 x)).

    The exponential is a power of two, the factor in it -2 * sqrt(2 / pi) * log2(e). Its bound keeps it from
    overflowing; what is left of a value there is nothing in float8.
    """
    exponent = values * (-2.302208198144325 - 0.1029432395800235 * (values * values))
    return values / (1.0 + tl.exp2(tl.minimum(exponent, 126.0)))


@triton.jit
def quantise_kernel(
    rows,
    out,
    scales,
    smallest,
    step,
    width: tl.constexpr,
    main: tl.constexpr,
    rest: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """One row."""
    if overlaps:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    first, second, mask = row_pieces(width, main, rest)
    if overlaps:
        gdc_wait()
    low, high = load_pieces(rows + row * width, first, second, mask)
    _store_quantised(low, high, out, scales, row, first, second, mask, width, smallest, step)


@triton.jit
def gelu_fp8_kernel(
    rows,
    out,
    scales,
    smallest,
    step,
    width: tl.constexpr,
    main: tl.constexpr,
    rest: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """One row: its GELU, in float32."""
    if overlaps:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    first, second, mask = row_pieces(width, main, rest)
    if overlaps:
        gdc_wait()
    low, high = load_pieces(rows + row * width, first, second, mask)
    _store_quantised(_gelu(low), _gelu(high), out, scales, row, first, second, mask, width, smallest, step)


@triton.jit
def layer_norm_fp8_kernel(
    hidden,
    branch,
    offset,
    weight,
    bias,
    out,
    scales,
    eps,
    smallest,
    step,
    width: tl.constexpr,
    main: tl.constexpr,
    rest: tl.constexpr,
    overlaps: tl.constexpr,
) -> None:
    """One row: adds the branch to the hidden row in place, then norms the sum and what it lacks.

    Weights and biases are on their way before the row is there, as in `layer_norm_kernel`.
    """
    if overlaps:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    first, second, mask = row_pieces(width, main, rest)
    weights = load_pieces(weight, first, second, mask)
    biases = load_pieces(bias, first, second, mask)
    if overlaps:
        gdc_wait()
    own = hidden + row * width
    low, high = load_pieces(own, first, second, mask)
    if branch is not None:
        low_branch, high_branch = load_pieces(branch + row * width, first, second, mask)
        low, high = (low + low_branch).to(hidden.dtype.element_ty), (high + high_branch).to(hidden.dtype.element_ty)
        store_pieces(own, low, high, first, second, mask)
        low, high = low.to(tl.float32), high.to(tl.float32)
    low, high = normed(low, high, offset, weights, biases, eps, first, second, mask, width)
    _store_quantised(low, high, out, scales, row, first, second, mask, width, smallest, step)

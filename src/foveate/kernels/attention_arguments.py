"""What `foveate.kernels.attention.packed_attention` takes, checked on the host without a look at the device."""

import torch
from torch import Tensor

__all__ = ["check_arguments", "check_out"]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

ALIGNMENT_BYTES = 16
"""Of the first row: what one thread copies at once."""

ALIGNMENT_ELEMENTS = 8
"""Of the row stride: the same in bfloat16 and float16."""


def check_arguments(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> None:
    """Raises ValueError for shapes, types, strides or devices the kernel does not take."""
    tensors = {"query": query, "key": key, "value": value}
    if query.dim() != 3 or query.shape != key.shape or query.shape != value.shape:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors.values())
        raise ValueError(f"query, key and value must have one shape [rows, heads, head_size]: got {shapes}.")
    if query.dtype not in DTYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        raise ValueError(
            f"query, key and value must have one type of {', '.join(map(str, DTYPES))}: "
            f"got {query.dtype}, {key.dtype}, {value.dtype}."
        )
    if bounds.dim() != 1 or bounds.numel() == 0 or bounds.dtype != torch.int32 or not bounds.is_contiguous():
        raise ValueError(
            f"bounds must be int32 [slots + 1], contiguous: got {bounds.dtype} {list(bounds.shape)}, "
            f"strides {bounds.stride()}."
        )
    devices = {tensor.device for tensor in (query, key, value, bounds)}
    if len(devices) > 1:
        raise ValueError(f"query, key, value and bounds must be on one device: got {sorted(map(str, devices))}.")
    for name, tensor in tensors.items():
        _check_rows(name, tensor, inner=(tensor.shape[2], 1))
        if not 0 <= longest * tensor.stride(0) < 2**31:
            raise ValueError(
                f"longest is {longest} rows of {tensor.stride(0)} elements in {name}: one sequence must be from 0 to "
                f"{2**31 - 1} elements, for offsets within it have 32 bits."
            )


def check_out(out: Tensor, query: Tensor) -> None:
    """Raises ValueError unless `out` can take the result: `[rows, heads * head_size]` of the type of `query`."""
    rows, heads, head_size = query.shape
    if out.dtype != query.dtype or out.device != query.device or out.shape != (rows, heads * head_size):
        raise ValueError(
            f"out must be {query.dtype} [{rows}, {heads * head_size}] on {query.device}: "
            f"got {out.dtype} {list(out.shape)} on {out.device}."
        )
    _check_rows("out", out, inner=(1,))


def _check_rows(name: str, tensor: Tensor, inner: tuple[int, ...]) -> None:
    """Raises ValueError unless the rows are contiguous, with `inner` their strides, and aligned."""
    if tensor.numel() == 0:
        return
    strides = tensor.stride()
    if any(size > 1 and got != wanted for size, got, wanted in zip(tensor.shape[1:], strides[1:], inner, strict=True)):
        raise ValueError(
            f"The heads of a row of {name} must lie side by side, strides {inner}: got {strides[1:]}; "
            "make it contiguous."
        )
    if (len(tensor) > 1 and strides[0] % ALIGNMENT_ELEMENTS) or tensor.data_ptr() % ALIGNMENT_BYTES:
        raise ValueError(
            f"The rows of {name} must begin at multiples of {ALIGNMENT_BYTES} bytes and lie a multiple of "
            f"{ALIGNMENT_ELEMENTS} elements apart: got a start {tensor.data_ptr() % ALIGNMENT_BYTES} bytes beyond such "
            f"a multiple and a row stride of {strides[0]} elements; make it contiguous."
        )

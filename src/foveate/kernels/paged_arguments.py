"""What both attentions over pages ask of their arguments, and the sizes of their blocks."""

import torch
from torch import Tensor

__all__ = ["check_paged", "power_of_two"]


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least that."""
    return 1 << (least - 1).bit_length()


def check_paged(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, page_tables: Tensor, rows_are: str, **others: Tensor
) -> None:
    """Raise ValueError for shapes, types or layouts that no kernel over pages takes.

    `rows_are` is what a row of the query is, in words; `others` are by their names in messages.
    """
    tensors = {"query": query, "key_pages": key_pages, "value_pages": value_pages, **others}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous: got {list(tensor.shape)}, strides {tensor.stride()}.")
    if key_pages.dim() != 4 or key_pages.shape != value_pages.shape:
        shapes = f"{list(key_pages.shape)} and {list(value_pages.shape)}"
        raise ValueError(
            f"key_pages and value_pages must be of one shape [pages, page_tokens, heads, head_size]: got {shapes}."
        )
    key_heads, head_size = key_pages.shape[2:]
    if query.dim() != 3 or query.shape[2] != head_size or query.shape[1] % key_heads:
        raise ValueError(
            f"query must be [{rows_are}, a multiple of {key_heads} heads, {head_size}]: got {list(query.shape)}."
        )
    if query.dtype != key_pages.dtype or query.dtype != value_pages.dtype:
        types = f"{query.dtype}, {key_pages.dtype}, {value_pages.dtype}"
        raise ValueError(f"query, key_pages and value_pages must be of one type: got {types}.")
    if page_tables.dim() != 2 or page_tables.stride(1) != 1 or page_tables.dtype != torch.int32:
        raise ValueError(
            f"page_tables must be int32 [sequences, pages], rows contiguous: got {page_tables.dtype} "
            f"{list(page_tables.shape)}, strides {page_tables.stride()}."
        )
    devices = {tensor.device for tensor in (*tensors.values(), page_tables)}
    if len(devices) > 1:
        raise ValueError(f"All tensors must be on one device: got {sorted(map(str, devices))}.")

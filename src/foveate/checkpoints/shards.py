"""Writing safetensors files tensor by tensor, without ever holding a whole file in memory."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, empty, uint8

__all__ = ["Shard", "StoredTensor", "index_of", "split_into_shards", "write_shard"]

_DTYPE_CODES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as the header of a safetensors file describes it."""

    name: str
    """The name in the file."""

    shape: tuple[int, ...]
    """As torch has it."""

    dtype: str
    """The element type: bfloat16, float16 or float32."""

    @property
    def size_bytes(self) -> int:
        """The length of its data."""
        size = _ELEMENT_BYTES[self.dtype]
        for side in self.shape:
            size *= side
        return size


@dataclass(frozen=True)
class Shard:
    """The tensors of one file, in the order of their data."""

    file_name: str
    """model.safetensors, or model-00001-of-00003.safetensors and so on."""

    tensors: tuple[StoredTensor, ...]
    """What the file holds."""

    def header(self) -> bytes:
        """The file up to the first tensor's data: the length as 8 bytes, then JSON padded to a multiple of 8."""
        entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for tensor in self.tensors:
            end = offset + tensor.size_bytes
            entries[tensor.name] = {
                "dtype": _DTYPE_CODES[tensor.dtype],
                "shape": tensor.shape,
                "data_offsets": [offset, end],
            }
            offset = end
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


def split_into_shards(tensors: Sequence[StoredTensor], max_shard_bytes: int | None) -> list[Shard]:
    """Cut the tensors, in order, into files of at most `max_shard_bytes`; a larger tensor has a file of its own."""
    groups: list[list[StoredTensor]] = [[]]
    held_bytes = 0
    for tensor in tensors:
        if max_shard_bytes is not None and groups[-1] and held_bytes + tensor.size_bytes > max_shard_bytes:
            groups.append([])
            held_bytes = 0
        groups[-1].append(tensor)
        held_bytes += tensor.size_bytes
    if len(groups) == 1:
        return [Shard("model.safetensors", tuple(groups[0]))]
    return [
        Shard(f"model-{number:05}-of-{len(groups):05}.safetensors", tuple(group))
        for number, group in enumerate(groups, start=1)
    ]


def index_of(shards: Iterable[Shard]) -> dict[str, object]:
    """The JSON of model.safetensors.index.json: which file holds which tensor, and the size of all data in bytes."""
    places = {tensor.name: shard.file_name for shard in shards for tensor in shard.tensors}
    total_bytes = sum(tensor.size_bytes for shard in shards for tensor in shard.tensors)
    return {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(places.items()))}


def write_shard(folder: Path, shard: Shard, values: Iterator[tuple[str, Tensor]]) -> Iterator[int]:
    """Write one file, taking the shard's tensors from `values`, and yield each tensor's bytes once they are written.

    Raises:
        ValueError: `values` gives another tensor than the one whose turn it is, or ends early.
        OSError: the disk is full or cannot be written.
    """
    with (folder / shard.file_name).open("wb") as file:
        file.write(shard.header())
        for tensor in shard.tensors:
            name, value = next(values, ("nothing", empty(0)))
            got = StoredTensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
            if got != tensor:
                raise ValueError(f"{shard.file_name} expects {tensor} next, got {got}")
            file.write(value.cpu().contiguous().view(uint8).numpy().data)
            # Or this tensor would be alive while the next is made.
            del value
            yield tensor.size_bytes

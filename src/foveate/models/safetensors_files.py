"""The tensors of a checkpoint folder, read one by one from its safetensors files. Pickled weights are never opened."""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from foveate.errors import CheckpointError
from foveate.models.json_files import read_json


def safetensors_files(folder: Path) -> list[Path]:
    """Return the weight files of `folder`: those that the index names, or the single file.

    Raises CheckpointError when there are none, when one is missing, or when the index points out of the folder.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index} has no weight_map")
        files = [folder / name for name in sorted({str(name) for name in weight_map.values()})]
        strays = [file.name for file in files if file.parent != folder]
        if strays:
            raise CheckpointError(f"{index} names {strays[0]!r}, which is not a file of this folder")
    else:
        files = [folder / "model.safetensors"]
    try:
        missing = [file.name for file in files if not file.is_file()]
    except OSError as error:
        raise CheckpointError(f"{index} names a file that cannot be looked up: {error.strerror}") from error
    if missing:
        pickled = next(folder.glob("*.bin"), None)
        hint = f"; {pickled.name} is a pickle, which Foveate never opens: convert it to safetensors" if pickled else ""
        raise CheckpointError(f"{folder} has no {', '.join(missing)}{hint}")
    return files


def read_tensors(file: Path, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of one file, each straight onto `device`; raises CheckpointError when the file is damaged."""
    try:
        with safe_open(file, framework="pt", device=str(device)) as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a dict: it cannot be iterated
                yield name, tensors.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is damaged or cut off: {error}") from error


def tensor_shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor in `files`, from their headers alone; a name that comes twice counts
    once."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                shapes.update({name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()})  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged or cut off: {error}") from error
    return shapes

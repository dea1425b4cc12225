"""Changing a checkpoint folder, to see what the change does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def edit_json(path: Path, *sections: str, **changes: Any) -> None:
    """Set values in a JSON file, in the named section of a section of it; a value of `...` takes the key out."""
    whole = section = read_json(path)
    for name in sections:
        section = section[name]
    section.update(changes)
    for key in [key for key, value in section.items() if value is ...]:
        del section[key]
    path.write_text(json.dumps(whole), encoding="utf-8")


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Load the tensors of a folder's single file, let `change` change them in place, and write them back."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")

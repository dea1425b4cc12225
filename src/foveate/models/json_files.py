"""JSON files of a checkpoint, read with errors that name them."""

import json
from pathlib import Path
from typing import Any

from foveate.errors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises CheckpointError when the file is missing, damaged or holds something else."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}: it is not a complete model folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}, not a JSON object")
    return value


def read_optional_json(path: Path) -> dict[str, Any]:
    """Like `read_json`, but a missing file is an empty object."""
    return read_json(path) if path.exists() else {}

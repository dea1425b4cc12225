"""Writing a whole checkpoint folder."""

import copy
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from foveate.checkpoints.inventory import TensorNames, inventory
from foveate.checkpoints.layout import CheckpointLayout, Json
from foveate.checkpoints.layouts import layout
from foveate.checkpoints.shards import Shard, StoredTensor, index_of, split_into_shards, write_shard
from foveate.checkpoints.tensors import random_tensors
from foveate.checkpoints.tokenizer import CHAT_TEMPLATE, tokenizer_config, tokenizer_json
from foveate.errors import CheckpointError, ConfigurationError

__all__ = ["Progress", "new_checkpoint"]

Progress = Callable[[int, int], None]
"""Called with the bytes of tensors written so far and in all, at the beginning and after every tensor."""

_ROOM_FOR_OTHER_FILES_BYTES = 32 << 20


def new_checkpoint(
    out: str | Path,
    like: str | CheckpointLayout = "tiny",
    *,
    seed: int = 0,
    dtype: str = "bfloat16",
    names: TensorNames = "official",
    max_shard_bytes: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a checkpoint of a true layout with seeded random weights and a working tokenizer, and return its folder.

    Everything is written into a hidden folder beside `out`, which takes its name at the end: `out` is either complete
    or not there. One tensor is in memory at a time, so a checkpoint larger than the memory can be made.

    Args:
        out: The folder to make. It may exist if it is empty; parents are made.
        like: A name of `LAYOUT_NAMES`, or a layout.
        seed: Another seed gives other weights; the same one gives the same files.
        dtype: bfloat16, float16 or float32; the configuration files name it too.
        names: Tensor names of the published files, or of models created and saved by transformers 5.
        max_shard_bytes: Cut the tensors into files of at most this size; None writes a single file.
        progress: Told of the bytes written.

    Raises:
        ConfigurationError: an unknown layout, dtype or kind of names, or a size of shards below one byte.
        CheckpointError: `out` is a file or holds something, or there is no room for the checkpoint.
    """
    chosen = layout(like) if isinstance(like, str) else like
    if max_shard_bytes is not None and max_shard_bytes < 1:
        raise ConfigurationError(f"max_shard_bytes is {max_shard_bytes}: give at least 1, or None for a single file")
    values = random_tensors(chosen, seed=seed, dtype=dtype, names=names)
    shards = split_into_shards(
        [StoredTensor(spec.named(names), spec.shape, dtype) for spec in inventory(chosen)], max_shard_bytes
    )
    with _made_whole(Path(out).resolve(), _data_bytes(shards)) as unfinished:
        write_settings(unfinished, chosen, dtype)
        if len(shards) > 1:
            _write_json(unfinished / "model.safetensors.index.json", index_of(shards))
        _write_tensors(unfinished, shards, values, progress or _no_progress)
    return Path(out)


def _no_progress(_written_bytes: int, _total_bytes: int) -> None:
    pass


def _check_is_free(folder: Path) -> None:
    if folder.is_dir():
        if any(folder.iterdir()):
            raise CheckpointError(f"{folder} is not empty: choose a new folder, or empty this one first")
    elif folder.exists():
        raise CheckpointError(f"{folder} exists and is not a folder: choose another name")


@contextmanager
def _made_whole(folder: Path, data_bytes: int) -> Iterator[Path]:
    """Give a new folder beside `folder` that becomes it when the block ends well and vanishes when it does not."""
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            _check_is_free(folder)
            unfinished.mkdir(parents=True)
            _check_room(unfinished, data_bytes)
            yield unfinished
            if folder.is_dir():
                folder.rmdir()
            unfinished.rename(folder)
        except OSError as fault:
            raise CheckpointError(f"cannot write the checkpoint {folder}: {fault}") from fault
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _check_room(folder: Path, data_bytes: int) -> None:
    needed, free = data_bytes + _ROOM_FOR_OTHER_FILES_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise CheckpointError(
            f"the checkpoint needs {needed / 1e9:.2f} GB and {folder.parent} has {free / 1e9:.2f} GB free: "
            "choose another disk, a smaller layout or a shorter dtype"
        )


def _data_bytes(shards: list[Shard]) -> int:
    return sum(tensor.size_bytes for shard in shards for tensor in shard.tensors)


def _write_tensors(folder: Path, shards: list[Shard], values: Iterator[tuple[str, Tensor]], progress: Progress) -> None:
    written_bytes, total_bytes = 0, _data_bytes(shards)
    progress(written_bytes, total_bytes)
    for shard in shards:
        for tensor_bytes in write_shard(folder, shard, values):
            written_bytes += tensor_bytes
            progress(written_bytes, total_bytes)


def write_settings(folder: Path, chosen: CheckpointLayout, dtype: str, *, tokenizer: str | None = None) -> None:
    """Write every file of a checkpoint but its tensors; `tokenizer` is the text of another tokenizer.json."""
    _write_json(folder / "config.json", _with_dtype(chosen.config, dtype))
    _write_json(folder / "generation_config.json", chosen.generation)
    if chosen.processor is not None:
        _write_json(folder / "processor_config.json", chosen.processor)
    if chosen.preprocessor is not None:
        _write_json(folder / "preprocessor_config.json", chosen.preprocessor)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(chosen))
    (folder / "tokenizer.json").write_text(tokenizer or tokenizer_json(chosen), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _with_dtype(config: Json, dtype: str) -> dict[str, Any]:
    changed = copy.deepcopy(dict(config))
    for section in (changed, changed["text_config"], changed["vision_config"]):
        section.update({key: dtype for key in ("dtype", "torch_dtype") if key in section})
    return changed


def _write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""Writing a folder: complete or not there, the same bytes for one seed, readable by safetensors and transformers."""

import itertools
import json
import resource
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from foveate.checkpoints import LAYOUT_NAMES, layout, new_checkpoint, random_tensors, shrunk
from foveate.checkpoints.inventory import inventory
from foveate.checkpoints.shards import StoredTensor, split_into_shards, write_shard
from foveate.errors import CheckpointError, ConfigurationError

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


def read(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


def is_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def in_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_what_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    """Tensors read by safetensors are those that were generated, and each settings file of the layout is there."""
    chosen = layout(name) if name == "tiny" else shrunk(layout(name))
    folder = new_checkpoint(tmp_path / "out", chosen, seed=3)
    assert is_same(read(folder), dict(random_tensors(chosen, seed=3)))
    assert in_json(folder / "config.json") == chosen.config
    assert in_json(folder / "generation_config.json") == chosen.generation
    for file, content in (
        ("processor_config.json", chosen.processor),
        ("preprocessor_config.json", chosen.preprocessor),
    ):
        assert (folder / file).exists() == (content is not None)
        assert content is None or in_json(folder / file) == content


def test_settings_files_are_the_published_bytes(tmp_path: Path) -> None:
    """Whatever is not made small, LFM2.5-VL-1.6B's processor and generation files, is written byte for byte."""
    folder = new_checkpoint(tmp_path / "out", "tiny")
    for name in ("processor_config.json", "generation_config.json"):
        assert (folder / name).read_bytes() == (CONFIGS / f"LFM2.5-VL-1.6B.{name}").read_bytes()


@pytest.mark.parametrize(("name", "header_bytes"), [("LFM2.5-VL-450M", 46864), ("LFM2.5-VL-1.6B", 82400)])
def test_the_header_is_as_long_as_the_published_one(name: str, header_bytes: int) -> None:
    """The single file of a full checkpoint begins with a header of the published length."""
    stored = [StoredTensor(spec.name, spec.shape, "bfloat16") for spec in inventory(layout(name))]
    (shard,) = split_into_shards(stored, None)
    assert len(shard.header()) == 8 + header_bytes


def test_one_seed_gives_the_same_files(tmp_path: Path) -> None:
    """Two folders of one seed are equal byte for byte; another seed changes the tensors and nothing else."""
    first, again, other = (new_checkpoint(tmp_path / f"{n}", "tiny", seed=seed) for n, seed in enumerate((1, 1, 2)))
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    assert [n for n in names if (first / n).read_bytes() != (other / n).read_bytes()] == ["model.safetensors"]


@pytest.mark.parametrize("max_shard_bytes", [1, 100_000, 1_000_000])
def test_shards_hold_the_same_tensors(max_shard_bytes: int, tmp_path: Path) -> None:
    """Cut into files, the checkpoint holds the same tensors, each where the index says, and no file is too large."""
    folder = new_checkpoint(tmp_path / "out", "tiny", max_shard_bytes=max_shard_bytes)
    tensors = read(folder)
    index = in_json(folder / "model.safetensors.index.json")
    assert is_same(tensors, dict(random_tensors(layout("tiny"))))
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert index["weight_map"].keys() == tensors.keys()
    for file in set(index["weight_map"].values()):
        with safe_open(folder / file, framework="pt") as opened:
            names = set(opened.keys())
        assert names == {name for name, place in index["weight_map"].items() if place == file}
        assert len(names) == 1 or sum(tensors[name].nbytes for name in names) <= max_shard_bytes


@pytest.mark.parametrize(("dtype", "element_bytes"), [("bfloat16", 2), ("float16", 2), ("float32", 4)])
@pytest.mark.parametrize("name", ["LFM2-VL-1.6B", "LFM2.5-VL-1.6B"])
def test_the_configuration_names_the_type_of_the_tensors(
    name: str, dtype: str, element_bytes: int, tmp_path: Path
) -> None:
    """Tensors are of the type asked for, and config.json says so under the key that its form uses, in every section."""
    folder = new_checkpoint(tmp_path / "out", shrunk(layout(name)), dtype=dtype)
    config = in_json(folder / "config.json")
    key = "torch_dtype" if name == "LFM2-VL-1.6B" else "dtype"
    assert [section[key] for section in (config, config["text_config"], config["vision_config"])] == [dtype] * 3
    assert {tensor.element_size() for tensor in read(folder).values()} == {element_bytes}
    assert layout(name).config[key] == "bfloat16"


def test_names_of_transformers_drop_the_inner_tower(tmp_path: Path) -> None:
    """Asked for transformers' names, the file has the same tensors without `vision_model` in the tower's names."""
    official = read(new_checkpoint(tmp_path / "official", "tiny"))
    renamed = read(new_checkpoint(tmp_path / "renamed", "tiny", names="transformers"))
    assert is_same({name.replace(".vision_model.", "."): tensor for name, tensor in official.items()}, renamed)
    assert any(".vision_tower.encoder." in name for name in renamed)


def test_progress_tells_every_byte(tmp_path: Path) -> None:
    """Progress begins at nothing, grows with every tensor, and ends at the total."""
    told: list[tuple[int, int]] = []
    new_checkpoint(tmp_path / "out", "tiny", progress=lambda written, total: told.append((written, total)))
    total_bytes = sum(2 * spec.elements for spec in inventory(layout("tiny")))
    assert told[0] == (0, total_bytes)
    assert told[-1] == (total_bytes, total_bytes)
    assert len(told) == 1 + len(inventory(layout("tiny")))
    assert all(before[0] < after[0] for before, after in itertools.pairwise(told))


def test_one_tensor_is_alive_at_a_time(tmp_path: Path) -> None:
    """While a tensor is made, none of those written before it is in memory any more."""
    chosen = layout("tiny")
    alive: list[weakref.ref[torch.Tensor]] = []

    def watched() -> Iterator[tuple[str, torch.Tensor]]:
        source = random_tensors(chosen)
        while True:
            name, tensor = next(source, (None, None))
            if name is None or tensor is None:
                return
            assert [reference() for reference in alive if reference() is not None] == []
            alive.append(weakref.ref(tensor))
            pair = [(name, tensor)]
            del tensor
            yield pair.pop()

    (shard,) = split_into_shards([StoredTensor(s.name, s.shape, "bfloat16") for s in inventory(chosen)], None)
    assert sum(write_shard(tmp_path, shard, watched())) == sum(tensor.size_bytes for tensor in shard.tensors)
    assert len(alive) == len(shard.tensors)


def test_a_tensor_out_of_turn_is_refused(tmp_path: Path) -> None:
    """A source of tensors that ends early or gives another shape does not make a file that looks whole."""
    (shard,) = split_into_shards([StoredTensor("weight", (2, 3), "float32")], None)
    for source in ([], [("weight", torch.zeros(3, 2))], [("bias", torch.zeros(2, 3))]):
        with pytest.raises(ValueError, match="expects StoredTensor"):
            list(write_shard(tmp_path, shard, iter(source)))


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """A folder that is not empty, or a file of that name, is refused and unchanged; an empty folder is used."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"taken is not empty: choose a new folder"):
        new_checkpoint(tmp_path / "taken")
    with pytest.raises(CheckpointError, match=r"file exists and is not a folder"):
        new_checkpoint(tmp_path / "file")
    new_checkpoint(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "taken"]
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["notes.txt"]
    assert (tmp_path / "file").read_text() == "mine"


def test_parents_are_made_and_relative_names_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name below folders that do not exist yet leads to a checkpoint there."""
    monkeypatch.chdir(tmp_path)
    assert new_checkpoint("some/where/new") == Path("some/where/new")
    assert (tmp_path / "some/where/new/model.safetensors").is_file()


def interrupting(exception: BaseException) -> Callable[[int, int], None]:
    """Progress that raises once half of the bytes are written."""

    def progress(written: int, total: int) -> None:
        if written > total / 2:
            raise exception

    return progress


@pytest.mark.parametrize("exception", [KeyboardInterrupt(), RuntimeError("the progress bar broke")])
def test_an_interrupted_writing_leaves_nothing(exception: BaseException, tmp_path: Path) -> None:
    """Stopped half-way, by the user or by an error elsewhere, neither the folder nor a part of it stays."""
    with pytest.raises(type(exception)):
        new_checkpoint(tmp_path / "out", "tiny", progress=interrupting(exception))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path: Path) -> None:
    """When the system refuses to write on, the error says so and names the folder, and nothing stays."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*out: .*File too large"):
            new_checkpoint(tmp_path / "out", "tiny")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_larger_than_the_disk_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """The bytes needed are compared with those free first, and the error gives both."""
    tiny = layout("tiny")
    enormous = replace(tiny, config={**tiny.config, "text_config": {**tiny.text, "vocab_size": 10**15}})
    with pytest.raises(CheckpointError, match=r"needs 2560000\d\d\.\d\d GB and .* GB free: choose another disk"):
        new_checkpoint(tmp_path / "out", enormous)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"like": "LFM3"}, "unknown checkpoint layout 'LFM3'"),
        ({"dtype": "fp8"}, "unknown dtype 'fp8'"),
        ({"names": "gguf"}, "unknown tensor names 'gguf'"),
        ({"max_shard_bytes": 0}, "max_shard_bytes is 0: give at least 1"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_written(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """An unknown name or a size out of bounds is a configuration error, and no folder appears."""
    with pytest.raises(ConfigurationError, match=message):
        new_checkpoint(tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []

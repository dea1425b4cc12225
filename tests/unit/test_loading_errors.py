"""A checkpoint folder with something wrong is refused with a message that names it; nothing else is ever raised."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import foveate
from foveate.errors import CheckpointError, ConfigurationError, DeviceError
from foveate.loading import choose_dtype, find_folder
from tests.folders import edit_json, edit_tensors

NORM = "model.language_model.embedding_norm.weight"
TABLE = "model.language_model.embed_tokens.weight"


def refusal(folder: Path) -> str:
    """The message with which a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        foveate.load(folder, device="cpu")
    return str(caught.value)


def weight_map(folder: Path, file_name: object) -> None:
    """Replace the single file's role by an index that names another file for its first tensor."""
    places = {NORM: file_name, TABLE: "model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def pickle_instead(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "config not JSON": (
        lambda folder: (folder / "config.json").write_text("{model"),
        "config.json cannot be read as JSON",
    ),
    "config not text": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{"), "cannot be read as JSON"),
    "config too deep": (lambda folder: (folder / "config.json").write_text("[" * 99999), "cannot be read as JSON"),
    "config a list": (lambda folder: (folder / "config.json").write_text("[]"), "holds a list, not a JSON object"),
    "config empty": (lambda folder: (folder / "config.json").write_text("{}"), "model_type is None"),
    "another model": (lambda folder: edit_json(folder / "config.json", model_type="llava"), "model_type is 'llava'"),
    "another text model": (
        lambda folder: edit_json(folder / "config.json", "text_config", model_type="llama"),
        "a part is 'llama'; Foveate runs 'lfm2'",
    ),
    "another vision model": (
        lambda folder: edit_json(folder / "config.json", "vision_config", model_type="clip_vision_model"),
        "a part is 'clip_vision_model'",
    ),
    "scaled positions": (
        lambda folder: edit_json(
            folder / "config.json",
            "text_config",
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
        ),
        "rope_type is 'linear'",
    ),
    "no vision layer left": (
        lambda folder: edit_json(folder / "config.json", vision_feature_layer=-9),
        "vision_feature_layer is -9",
    ),
    "image token outside the vocabulary": (
        lambda folder: edit_json(folder / "config.json", image_token_id=2048),
        "image_token_id 2048 is outside the vocabulary of 2048",
    ),
    "another image token": (
        lambda folder: edit_json(folder / "config.json", image_token_id=395),
        "set image_token_id to 396",
    ),
    "other patches": (
        lambda folder: edit_json(folder / "processor_config.json", "image_processor", encoder_patch_size=8),
        "differ in patch size",
    ),
    "processor config not JSON": (
        lambda folder: (folder / "processor_config.json").write_text("?"),
        "processor_config.json cannot be read as JSON",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
    "a pickle": (pickle_instead, "pytorch_model.bin is a pickle, which Foveate never opens"),
    "a tensor missing": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.pop(NORM)),
        "1 tensors are missing: language_model.embedding_norm.weight",
    ),
    "a tensor too many": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.update({"model.extra.weight": torch.ones(3)})),
        "1 tensors have no place in this model: model.extra.weight",
    ),
    "a wrong shape": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.update({NORM: tensors[NORM][:-1]})),
        f"{NORM} has the shape [127]; the config.json asks for [128]",
    ),
    "a transposed tensor": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.update({TABLE: tensors[TABLE].T})),
        f"{TABLE} has the shape [128, 2048]; the config.json asks for [2048, 128]",
    ),
    "whole numbers": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.update({NORM: torch.ones(128, dtype=torch.int8)})),
        f"{NORM} is of type torch.int8",
    ),
    "an index out of the folder": (
        lambda folder: weight_map(folder, "../model.safetensors"),
        "not a file of this folder",
    ),
    "an index of an absolute path": (lambda folder: weight_map(folder, "/etc/passwd"), "not a file of this folder"),
    "an index of a folder": (lambda folder: weight_map(folder, ".."), "has no .."),
    "an index of a file that is not there": (
        lambda folder: weight_map(folder, "b.safetensors"),
        "has no b.safetensors",
    ),
    "an index of a number": (lambda folder: weight_map(folder, 7), "has no 7"),
    "an index without a map": (
        lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": []}'),
        "has no weight_map",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "the tokenizer in"),
    "a broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text('{"model": 1}'), "the tokenizer in"),
    "no chat template": (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
}


@pytest.mark.parametrize(("spoil", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_spoilt_folder_is_refused_with_what_is_wrong(tiny_copy: Path, spoil: Callable[[Path], object], expected: str):
    spoil(tiny_copy)
    assert expected in refusal(tiny_copy)


def cut_points(size_bytes: int, header_bytes: int) -> list[int]:
    """Within the length, the header and the data, at their edges, and one byte before the end."""
    data = 8 + header_bytes
    return [0, 1, 7, 8, 9, data // 2, data - 1, data, data + 1, (data + size_bytes) // 2, size_bytes - 1]


def test_a_file_cut_off_anywhere_is_called_damaged(tiny_copy: Path):
    file = tiny_copy / "model.safetensors"
    whole = file.read_bytes()
    for cut in cut_points(len(whole), int.from_bytes(whole[:8], "little")):
        file.write_bytes(whole[:cut])
        assert "model.safetensors is damaged or cut off" in refusal(tiny_copy), cut


@pytest.mark.parametrize("length", [0, 1, 2**40, 2**64 - 1])
def test_a_header_that_lies_about_its_length_is_called_damaged(tiny_copy: Path, length: int):
    file = tiny_copy / "model.safetensors"
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    assert "model.safetensors is damaged or cut off" in refusal(tiny_copy)


def test_a_file_is_not_taken_for_a_folder(tiny: Path):
    with pytest.raises(CheckpointError, match=r"config\.json is a file; give the folder"):
        find_folder(tiny / "config.json")


@pytest.mark.parametrize("name", ["nowhere", "./a/b", "/a/b", "a/b/c", "../a", "a b/c"])
def test_what_is_neither_a_folder_nor_a_hub_name_is_not_looked_for_on_the_hub(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"there is no folder {re.escape(name)}, and it is not a hub name"):
        find_folder(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "mps", "CPU", ""])
def test_a_device_of_another_name_is_refused(tiny: Path, name: str):
    with pytest.raises(ConfigurationError, match=f"device is '{name}'; allowed are auto, cpu, cuda and cuda:N"):
        foveate.load(tiny, device=name)


def test_a_device_that_is_not_there_is_refused(tiny: Path):
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with pytest.raises(DeviceError, match=f"this machine has {count} CUDA devices"):
        foveate.load(tiny, device=f"cuda:{count}")


@pytest.mark.parametrize("name", ["float64", "bf16", "", "int8", None, ["float32"], torch.float32])
def test_a_type_of_another_name_is_refused(tiny: Path, name: object):
    with pytest.raises(ConfigurationError, match=re.escape(f"dtype is {name!r}; allowed are auto, float32")):
        foveate.load(tiny, device="cpu", dtype=name)


def test_the_automatic_type_is_the_checkpoint_s_on_a_gpu_and_float32_elsewhere():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_dtype("auto", cpu, "bfloat16") == torch.float32
    assert choose_dtype("auto", cuda, "bfloat16") == torch.bfloat16
    assert choose_dtype("auto", cuda, "float8_e4m3fn") == torch.float32

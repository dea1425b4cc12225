"""A model that cannot be loaded: exit code 2 and one line that says what is wrong with it."""

import json

import pytest
from safetensors.torch import load_file, save_file


def test_a_folder_that_is_not_there_is_named(complaint, picture, tmp_path):
    assert "nowhere" in complaint("describe", picture, "--model", tmp_path / "nowhere")


def test_a_file_is_not_taken_for_a_model_folder(complaint, picture):
    assert "is a file" in complaint("describe", picture, "--model", picture)


def test_a_folder_without_a_config_is_not_a_complete_model(complaint, picture, tmp_path):
    assert "has no config.json" in complaint("describe", picture, "--model", tmp_path)


def test_a_config_that_is_not_json_is_named(complaint, picture, model_copy):
    (model_copy / "config.json").write_text("{")
    assert "config.json cannot be read as JSON" in complaint("describe", picture, "--model", model_copy)


def test_a_config_of_another_model_type_is_told_what_is_read(complaint, picture, model_copy):
    config = json.loads((model_copy / "config.json").read_text())
    (model_copy / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    line = complaint("describe", picture, "--model", model_copy)
    assert "'llama'" in line
    assert "lfm2_vl" in line


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_weights_file_is_called_damaged(complaint, picture, model_copy, kept):
    weights = model_copy / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: kept if isinstance(kept, int) else int(len(data) * kept)])
    assert "model.safetensors is damaged or cut off" in complaint("describe", picture, "--model", model_copy)


def test_missing_weights_are_named(complaint, picture, model_copy):
    (model_copy / "model.safetensors").unlink()
    assert "has no model.safetensors" in complaint("describe", picture, "--model", model_copy)


def test_a_missing_tensor_is_named(complaint, picture, model_copy):
    weights = model_copy / "model.safetensors"
    tensors = load_file(weights)
    missing = next(name for name in tensors if name.endswith("embed_tokens.weight"))
    save_file({name: tensor for name, tensor in tensors.items() if name != missing}, weights)
    line = complaint("describe", picture, "--model", model_copy)
    assert "1 tensors are missing" in line
    assert "embed_tokens.weight" in line


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_a_model_without_its_text_files_is_refused(complaint, picture, model_copy, name):
    (model_copy / name).unlink()
    assert str(model_copy) in complaint("describe", picture, "--model", model_copy)


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "cpu:1", "cuda:-1", ""])
def test_a_device_that_is_not_there_is_named(complaint, picture, model, device):
    assert repr(device) in complaint("describe", picture, "--model", model, "--device", device)


@pytest.mark.parametrize("dtype", ["float64", "int8", ""])
def test_an_unknown_dtype_is_told_which_are_allowed(complaint, picture, model, dtype):
    line = complaint("describe", picture, "--model", model, "--dtype", dtype)
    assert repr(dtype) in line
    assert "float32, bfloat16, float16" in line

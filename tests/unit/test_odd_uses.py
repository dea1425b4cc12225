"""What people do by mistake, or on purpose, is told in one sentence and harms nothing else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import foveate
from foveate import VLM, SamplingParams
from foveate.checkpoints import new_checkpoint
from foveate.checkpoints.layouts import layout
from foveate.checkpoints.shrinking import shrunk
from foveate.errors import CheckpointError, ConfigurationError, NumbersError, PromptError, UnfinishedError
from foveate.graphs import BudgetRange
from foveate.loading import choose_device, find_folder
from tests.folders import edit_json

HELLO = [{"role": "user", "content": "Hello."}]


@pytest.mark.parametrize("name", ["tokenizer_config.json", "processor_config.json"])
def test_a_half_copied_folder_is_refused(tiny_copy: Path, name: str):
    (tiny_copy / name).unlink()
    with pytest.raises(CheckpointError, match=f"no .*{name}"):
        foveate.load(tiny_copy, device="cpu")


def test_a_template_that_begins_with_a_token_that_nobody_names_is_refused(tiny_copy: Path):
    (tiny_copy / "tokenizer_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="names no bos_token"):
        foveate.load(tiny_copy, device="cpu")


@pytest.mark.parametrize("key", ["do_rescale", "do_normalize"])
def test_pixels_that_would_not_be_normalised_are_refused(tiny_copy: Path, key: str):
    edit_json(tiny_copy / "processor_config.json", "image_processor", **{key: False})
    with pytest.raises(CheckpointError, match=f"{key} is false"):
        foveate.load(tiny_copy, device="cpu")


@pytest.mark.parametrize(
    ("sections", "change", "told"),
    [
        (("text_config",), {"vocab_size": 10**9}, "has the shape"),
        (
            ("text_config",),
            {"num_hidden_layers": 10**6, "layer_types": ["conv"] * 10**4},
            "layers; at most|does not accept",
        ),
        (("vision_config",), {"num_hidden_layers": 10**6}, "layers; at most 512"),
        ((), {"text_config": ...}, "missing|has the shape"),
    ],
)
def test_sizes_that_the_file_does_not_bear_out_are_told_before_memory_is_taken(
    tiny_copy: Path, sections: tuple[str, ...], change: dict[str, Any], told: str
):
    edit_json(tiny_copy / "config.json", *sections, **change)
    with pytest.raises(CheckpointError, match=told):
        foveate.load(tiny_copy, device="cpu")


@pytest.mark.parametrize("change", [{"max_tiles": 2000}, {"tile_size": 32768}])
def test_tiles_beyond_all_bounds_are_refused(tiny_copy: Path, change: dict[str, int]):
    edit_json(tiny_copy / "processor_config.json", "image_processor", **change)
    with pytest.raises(CheckpointError, match=r"at most 65536|<= 100"):
        foveate.load(tiny_copy, device="cpu")


def test_a_tokenizer_of_a_larger_model_is_refused(tiny_copy: Path):
    edit_json(tiny_copy / "config.json", "text_config", vocab_size=2000)
    with pytest.raises(CheckpointError, match="do not belong together"):
        foveate.load(tiny_copy, device="cpu")


def test_a_configuration_that_is_a_pipe_is_not_waited_for(tiny_copy: Path):
    (tiny_copy / "config.json").unlink()
    os.mkfifo(tiny_copy / "config.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        foveate.load(tiny_copy, device="cpu")


def test_names_that_cannot_be_looked_up_are_told():
    with pytest.raises(CheckpointError, match="cannot be looked up"):
        find_folder("a" * 5000)
    for name in (3, b"bytes"):
        with pytest.raises(ConfigurationError, match="the model is"):
            find_folder(name)


@pytest.mark.parametrize("name", ["cuda:99999999999999999999", "cuda:٣"])
def test_a_device_number_is_a_short_number(name: str):
    with pytest.raises(ConfigurationError, match="device is"):
        choose_device(name)


def test_a_device_may_be_torchs_own(tiny: Path):
    assert foveate.load(tiny, device=torch.device("cpu")).model.device.type == "cpu"


@pytest.mark.parametrize("variables", [{"ALL_PROXY": "socks5://127.0.0.1:9"}, {"HF_ENDPOINT": "notaurl"}])
def test_a_network_that_is_set_up_wrongly_is_one_error(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]):
    def refuse(*_: object, **__: object) -> None:
        raise ImportError("Using SOCKS proxy, but the 'socksio' package is not installed.")

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("foveate.loading.snapshot_download", refuse)
    with pytest.raises(CheckpointError, match="cannot be had from the hub: Using SOCKS"):
        find_folder("nobody/nothing")


def test_an_interrupted_answer_is_not_called_finished(tiny_vlm: VLM, monkeypatch: pytest.MonkeyPatch):
    stream = tiny_vlm.stream(HELLO, SamplingParams(max_tokens=20, ignore_stop_tokens=True))
    forward, calls = type(tiny_vlm.model.language).forward, []

    def interrupted(self: Any, *arguments: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return forward(self, *arguments)

    monkeypatch.setattr(type(tiny_vlm.model.language), "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    with pytest.raises(UnfinishedError, match="4 tokens and no end"):
        _ = stream.answer


def test_answers_that_were_not_begun_are_not_empty_ones(tiny_vlm: VLM):
    generation = tiny_vlm.start([HELLO])
    with pytest.raises(UnfinishedError, match="0 tokens"):
        generation.answers()
    assert list(generation)
    with pytest.raises(ValueError, match="generated already"):
        list(generation)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_that_are_no_numbers_are_told(tiny: Path, temperature: float):
    vlm = foveate.load(tiny, device="cpu")
    vlm.model.language.embedding.weight.fill_(torch.nan)
    with pytest.raises(NumbersError, match="try dtype float32"):
        vlm.chat(HELLO, SamplingParams(max_tokens=2, temperature=temperature))


@pytest.mark.parametrize(
    "use",
    [
        lambda vlm: vlm.chat(None),
        lambda vlm: vlm.chat(3),
        lambda vlm: vlm.chat(message for message in HELLO),
        lambda vlm: vlm.generate([None]),
        lambda vlm: vlm.generate(conversation for conversation in [HELLO]),
    ],
)
def test_a_conversation_of_another_type_is_a_prompt_error(tiny_vlm: VLM, use: Callable[[VLM], object]):
    with pytest.raises(PromptError, match=r"a conversation is a list|give a list of conversations"):
        use(tiny_vlm)


@pytest.mark.parametrize("sampling", [{"max_tokens": 3}, 5, [None]])
def test_sampling_of_another_type_is_a_configuration_error(tiny_vlm: VLM, sampling: object):
    with pytest.raises(ConfigurationError, match="give SamplingParams"):
        tiny_vlm.chat(HELLO, sampling)


@pytest.mark.parametrize("values", [(0, 8, 4), (-1, 8, 4), (9, 8, 4), (1, 8, 0)])
def test_a_range_of_budgets_that_is_none_is_refused(values: tuple[int, int, int]):
    with pytest.raises(ValueError, match="are no range"):
        BudgetRange(*values)


def test_a_folder_of_another_layout_is_still_read(tmp_path: Path):
    folder = new_checkpoint(tmp_path / "model", shrunk(layout("LFM2-VL-3B")))
    assert foveate.load(folder, device="cpu").model.config.images.min_tiles == 2
    shutil.rmtree(folder)

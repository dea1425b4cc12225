"""Whatever value stands in a checkpoint's settings, it is read or refused; it never ends in a trace."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Lfm2Config
from transformers.models.lfm2.modeling_lfm2 import Lfm2MLP

from foveate.checkpoints import layout, new_checkpoint, shrunk
from foveate.errors import CheckpointError
from foveate.models.lfm2_vl.config import ModelConfig, feed_forward_size, read_model_config
from foveate.models.lfm2_vl.model import Lfm2VlModel
from tests.folders import edit_json, read_json

ODD_VALUES = (None, "x", -1, 1.5, 10**400, [])
FILES = ("config.json", "generation_config.json", "processor_config.json", "preprocessor_config.json")


def places(section: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in section.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from places(value, (*before, key))


def with_value(whole: dict[str, Any], place: tuple[str, ...], value: object) -> dict[str, Any]:
    changed = section = copy.deepcopy(whole)
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = value
    return changed


def read_or_refuse(folder: Path) -> ModelConfig | None:
    try:
        return read_model_config(folder)
    except CheckpointError:
        return None


@pytest.mark.parametrize("place", [("vision_config", "hidden_act"), ("projector_hidden_act",)])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("prelu", "the activation 'prelu' has weights of its own; Foveate loads none"),
        ("xielu", "the activation 'xielu' has weights of its own; Foveate loads none"),
        ("no_such", "'no_such' is no activation that transformers knows"),
        ("relu2", None),
        ("silu", None),
    ],
)
def test_an_activation_is_one_that_transformers_knows_and_has_no_weights(
    tmp_path: Path, place: tuple[str, ...], name: str, reason: str | None
):
    folder = new_checkpoint(tmp_path / "model", shrunk(layout("LFM2-VL-1.6B")))
    edit_json(folder / "config.json", *place[:-1], **{place[-1]: name})
    if reason is None:
        read_model_config(folder)
        return
    with pytest.raises(CheckpointError) as refused:
        read_model_config(folder)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["LFM2-VL-1.6B", "LFM2.5-VL-1.6B"])
def test_any_value_in_any_place_is_read_or_refused(tmp_path: Path, name: str):
    """What is read can also be built: a model of those sizes exists, without memory for its weights."""
    folder = new_checkpoint(tmp_path / "model", shrunk(layout(name)))
    unchanged, num_refused = read_model_config(folder), 0
    for file in (folder / name for name in FILES if (folder / name).exists()):
        original = file.read_text()
        whole = json.loads(original)
        for place in places(whole):
            for value in ODD_VALUES:
                file.write_text(json.dumps(with_value(whole, place, value)))
                config = read_or_refuse(folder)
                num_refused += config is None
                if config not in (None, unchanged):
                    with torch.device("meta"):
                        Lfm2VlModel(config)
        file.write_text(original)
    assert num_refused > 100


def test_the_real_configurations_are_read_as_they_are_documented(tmp_path: Path):
    """The numbers that differ between the published models and are easily mistaken."""
    for name, (layers, ffn, kinds, tokens) in {
        "LFM2-VL-450M": (12, 4608, 6, 396),
        "LFM2-VL-1.6B": (26, 8192, 6, 396),
        "LFM2-VL-3B": (27, 10752, 8, 396),
        "LFM2.5-VL-450M": (12, 4608, 6, 396),
        "LFM2.5-VL-1.6B": (27, 8192, 6, 396),
        "LFM2.5-VL-3B": (27, 10752, 8, 124907),
    }.items():
        chosen, folder = layout(name), tmp_path / name
        folder.mkdir()
        parts = ("config", chosen.config), ("generation_config", chosen.generation)
        processors = ("processor_config", chosen.processor), ("preprocessor_config", chosen.preprocessor)
        for file, content in (*parts, *processors):
            if content is not None:
                (folder / f"{file}.json").write_text(json.dumps(dict(content)))
        config = read_model_config(folder)
        attention = config.language.layer_kinds.count("full_attention")
        assert (config.vision.num_layers, config.language.feed_forward_size, attention) == (layers, ffn, kinds), name
        assert config.image_token_id == tokens
        assert config.language.tie_embeddings
        assert config.dtype == "bfloat16"
        assert config.projector.use_layernorm == name.startswith("LFM2-")


@pytest.mark.parametrize(
    ("width", "adjust", "multiplier", "multiple", "expected"),
    [
        (6656, True, 1.0, 256, 4608),
        (12288, True, 1.0, 256, 8192),
        (10752, False, 1.0, 256, 10752),
        (6656, True, 1.5, 128, 6656),
        (300, True, 1.0, 256, 256),
    ],
)
def test_the_raw_feed_forward_width_is_adjusted_as_transformers_does(
    width: int, adjust: bool, multiplier: float, multiple: int, expected: int
):
    raw = Lfm2Config(
        hidden_size=4,
        intermediate_size=width,
        block_auto_adjust_ff_dim=adjust,
        block_ffn_dim_multiplier=multiplier,
        block_multiple_of=multiple,
        layer_types=["conv"],
        num_hidden_layers=1,
    )
    assert feed_forward_size(raw) == Lfm2MLP(raw).w1.out_features == expected


def test_stop_tokens_come_from_the_generation_file_then_from_the_text_model(tiny_copy: Path):
    file = tiny_copy / "generation_config.json"
    assert read_model_config(tiny_copy).stop_token_ids == {read_json(file)["eos_token_id"]}
    edit_json(file, eos_token_id=[5, 9, 5])
    assert read_model_config(tiny_copy).stop_token_ids == {5, 9}
    file.unlink()
    edit_json(tiny_copy / "config.json", "text_config", eos_token_id=11)
    assert read_model_config(tiny_copy).stop_token_ids == {11}
    file.write_text('{"eos_token_id": ["<|im_end|>"]}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id is \['<|im_end|>'\]"):
        read_model_config(tiny_copy)

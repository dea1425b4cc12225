"""The forms in which one model's weights may come all load to the same model."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

import foveate
from foveate.checkpoints import layout, new_checkpoint, shrunk
from foveate.errors import CheckpointError
from foveate.models.lfm2_vl.model import Lfm2VlModel
from tests.folders import edit_json, edit_tensors

TABLE = "model.language_model.embed_tokens.weight"
NORM = "model.multi_modal_projector.layer_norm"


def load(folder: Path) -> Lfm2VlModel:
    return foveate.load(folder, device="cpu").model


def assert_same(model: Lfm2VlModel, expected: Lfm2VlModel) -> None:
    ours, theirs = model.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def rename(folder: Path, new_name: Callable[[str], str]) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[new_name(name)] = tensors.pop(name)

    edit_tensors(folder, change)


def add(tensors: Mapping[str, Tensor]) -> Callable[[dict[str, Tensor]], None]:
    return lambda existing: existing.update(tensors)


@pytest.mark.parametrize("max_shard_bytes", [1, 300_000])
def test_shards_give_the_model_of_the_single_file(tiny_vlm: foveate.VLM, tmp_path: Path, max_shard_bytes: int):
    folder = new_checkpoint(tmp_path / "sharded", "tiny", max_shard_bytes=max_shard_bytes)
    assert not (folder / "model.safetensors").exists()
    assert_same(load(folder), tiny_vlm.model)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "without vision_model": lambda name: name.replace(".vision_tower.vision_model.", ".vision_tower."),
    "without model": lambda name: name.removeprefix("model."),
    "with an inner model": lambda name: name.replace("model.language_model.", "model.language_model.model."),
    "as the first remote code": lambda name: name[len("model.") :].replace("language_model.", "language_model.model."),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_tensor_names_of_every_writer_give_the_same_model(
    tiny_vlm: foveate.VLM, tiny_copy: Path, spelling: Callable[[str], str]
):
    rename(tiny_copy, spelling)
    assert_same(load(tiny_copy), tiny_vlm.model)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_of_every_type_are_converted_to_the_type_asked_for(tmp_path: Path, dtype: str):
    folder = new_checkpoint(tmp_path / "model", "tiny", dtype=dtype)
    model = load(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    rounded = model.language.embedding.weight.to(getattr(torch, dtype))
    assert torch.equal(foveate.load(folder, device="cpu", dtype=dtype).model.language.embedding.weight, rounded)


@pytest.mark.parametrize("prefix", ["", "language_model.", "model.language_model."])
def test_a_stored_copy_of_a_tied_head_is_not_used(tiny_vlm: foveate.VLM, tiny_copy: Path, prefix: str):
    edit_tensors(tiny_copy, add({f"{prefix}lm_head.weight": torch.randn(2048, 128)}))
    model = load(tiny_copy)
    assert model.language.head is None
    assert_same(model, tiny_vlm.model)


def test_an_untied_head_is_read_and_used(tiny_vlm: foveate.VLM, tiny_copy: Path):
    head = torch.randn(2048, 128, generator=torch.Generator().manual_seed(0))
    edit_json(tiny_copy / "config.json", tie_word_embeddings=False)
    edit_tensors(tiny_copy, add({"lm_head.weight": head}))
    model, hidden = load(tiny_copy), torch.randn(3, 128, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model.language.logits(hidden), hidden @ head.T)
    assert not torch.equal(model.language.logits(hidden), tiny_vlm.model.language.logits(hidden))


def test_an_untied_head_that_is_missing_is_named(tiny_copy: Path):
    edit_json(tiny_copy / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"1 tensors are missing: lm_head\.weight"):
        load(tiny_copy)


def test_a_projector_norm_that_is_switched_off_has_no_parameters(tiny_vlm: foveate.VLM, tiny_copy: Path):
    """Its weights may lie in the file all the same."""
    assert tiny_vlm.model.encoder.projector.norm is None
    edit_tensors(tiny_copy, add({f"{NORM}.weight": torch.ones(576), f"{NORM}.bias": torch.ones(576)}))
    assert_same(load(tiny_copy), tiny_vlm.model)


def test_a_projector_norm_is_switched_on_by_the_configuration_and_by_its_silence(tiny_copy: Path):
    weight = torch.randn(576)
    edit_tensors(tiny_copy, add({f"{NORM}.weight": weight, f"{NORM}.bias": torch.ones(576)}))
    for value in (True, ...):
        edit_json(tiny_copy / "config.json", projector_use_layernorm=value)
        assert torch.equal(load(tiny_copy).encoder.projector.norm.weight, weight)


def test_a_projector_norm_without_its_weights_is_refused_by_name(tiny_copy: Path):
    edit_json(tiny_copy / "config.json", projector_use_layernorm=True)
    with pytest.raises(CheckpointError, match=r"2 tensors are missing: multi_modal_projector\.layer_norm\.weight, "):
        load(tiny_copy)


def test_vision_layers_behind_the_one_that_is_used_are_left_out(tmp_path: Path):
    """Whether they lie in the file or not; the layers that are used are the same."""
    folder = new_checkpoint(tmp_path / "model", shrunk(layout("LFM2-VL-1.6B")))
    before = load(folder)
    layer = "model.vision_tower.vision_model.encoder.layers"

    def copy_last(tensors: dict[str, Tensor]) -> None:
        last = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{layer}.1.")}
        tensors.update({name.replace(f"{layer}.1.", f"{layer}.2."): tensor + 1 for name, tensor in last.items()})

    edit_tensors(folder, copy_last)
    assert len(before.encoder.tower.layers) == 2
    assert_same(load(folder), before)


def test_a_pooling_head_and_computed_buffers_are_left_out(tiny_vlm: foveate.VLM, tiny_copy: Path):
    extra = {
        "model.vision_tower.head.probe": torch.ones(1, 1, 144),
        "model.vision_tower.vision_model.head.attention.in_proj_weight": torch.ones(432, 144),
        "model.vision_tower.embeddings.position_ids": torch.arange(256),
        "model.language_model.rotary_emb.inv_freq": torch.ones(8),
    }
    edit_tensors(tiny_copy, add(extra))
    assert_same(load(tiny_copy), tiny_vlm.model)


def test_the_language_model_s_old_spellings_mean_the_same(tiny_vlm: foveate.VLM, tiny_copy: Path):
    """`rope_theta` for `rope_parameters`, `full_attn_idxs` for `layer_types`; the width without `block_ff_dim`."""
    file = tiny_copy / "config.json"
    edit_json(file, "text_config", rope_parameters=..., layer_types=..., block_ff_dim=...)
    edit_json(file, "text_config", rope_theta=1000000.0, full_attn_idxs=[2, 4])
    model = load(tiny_copy)
    assert model.config.language == tiny_vlm.model.config.language
    assert_same(model, tiny_vlm.model)


def test_loading_tells_how_many_tensors_are_done(tiny: Path):
    told: list[tuple[object, ...]] = []
    foveate.load(tiny, device="cpu", progress=lambda *numbers: told.append(numbers))
    assert [numbers[-2] for numbers in told] == list(range(1, len(told) + 1))
    assert {numbers[-1] for numbers in told} == {len(told)}

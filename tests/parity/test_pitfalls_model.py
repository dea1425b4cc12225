"""What went wrong with LFM2-VL elsewhere does not go wrong here: one case each, by its number in docs/pitfalls.md."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import foveate
from foveate.checkpoints import layout
from foveate.errors import CheckpointError, ImageSizeError
from foveate.models.lfm2_vl.tiles import plan_tiles
from tests.folders import edit_json, edit_tensors
from tests.parity.formats import FORMATS
from tests.parity.pictures import picture, shown, user
from tests.parity.reference import (
    Pair,
    load_pair,
    patch_rows,
    patches_in,
    prompt_of,
    reference_features,
    result_or_error,
    right_padded_step,
)
from tests.parity.running import Run, features_of, relative_error

PairOf = Callable[[str], Pair]
ON_AND_ON = foveate.SamplingParams(max_tokens=8, ignore_stop_tokens=True)
FLOAT32_BOUND = 1e-5
LAYER_NORM = "model.multi_modal_projector.layer_norm"


def copy_of(pair: Pair, tmp_path: Path) -> Path:
    return shutil.copytree(pair.folder, tmp_path / "copy")


def image_markers(pair: Pair, width: int, height: int) -> list[str]:
    """The tokens around the placeholders of one picture, in order."""
    ids = pair.prompt([user(shown(picture(width, height)))]).token_ids
    tokens = pair.vlm.processor.prompts.tokenizer.convert_ids_to_tokens(ids)
    return [token for token in tokens if token.startswith("<|im") and not token.startswith("<|im_")]


def test_pitfall_2_01_the_reference_s_padding_mask_matters_and_its_resampling_is_followed(pair_of: PairOf):
    """Without the mask the reference's own patch rows move a thousand times further than our features are from its."""
    pair, messages = pair_of("LFM2.5-VL-1.6B"), [user(shown(picture(60, 40)))]
    inputs = pair.inputs(messages)
    expected = reference_features(pair.model, inputs)
    (features,) = features_of(pair.vlm.model, [pair.prompt(messages)])
    assert relative_error(features, expected) < FLOAT32_BOUND
    mask = inputs["pixel_attention_mask"]
    masked, unmasked = (patch_rows(pair.model, {**inputs, "pixel_attention_mask": m}) for m in (mask, mask * 0 + 1))
    assert relative_error(unmasked[mask.bool()], masked[mask.bool()]) > 0.01
    bicubic = pair_of("LFM2.5-VL-3B")
    assert torch.equal(bicubic.prompt(messages).images[0].patches, patches_in(bicubic.inputs(messages)))
    assert not torch.equal(bicubic.prompt(messages).images[0].patches, pair.prompt(messages).images[0].patches)


@pytest.mark.parametrize(("width", "height", "rows", "columns"), [(1376, 768, 2, 4), (768, 1376, 4, 2)])
def test_pitfall_2_02_tiles_are_named_by_row_and_column_in_row_major_order(
    pair_of: PairOf, width: int, height: int, rows: int, columns: int
):
    tiles = [f"<|img_row_{row + 1}_col_{column + 1}|>" for row in range(rows) for column in range(columns)]
    expected = ["<|image_start|>", *tiles, "<|img_thumbnail|>", "<|image_end|>"]
    assert image_markers(pair_of("LFM2.5-VL-1.6B"), width, height) == expected


def test_pitfall_2_03_a_side_of_fewer_than_16_patches_gets_antialiased_positions(pair_of: PairOf):
    pair, messages = pair_of("LFM2.5-VL-1.6B"), [user(shown(picture(20, 500)))]
    inputs = pair.inputs(messages)
    assert inputs["spatial_shapes"].tolist() == [[80, 4]]
    (features,) = features_of(pair.vlm.model, [pair.prompt(messages)])
    assert relative_error(features, reference_features(pair.model, inputs)) < FLOAT32_BOUND
    table = pair.vlm.model.encoder.tower.position.weight.T.unflatten(1, (16, 16))[None]
    with_it, without = (F.interpolate(table, (80, 4), mode="bilinear", antialias=flag) for flag in (True, False))
    assert relative_error(without, with_it) > 0.1


def test_pitfall_2_04_pictures_above_the_bound_are_tiled(pair_of: PairOf):
    settings = pair_of("LFM2.5-VL-1.6B").vlm.model.config.images
    assert not plan_tiles(720, 720, settings).is_split
    tiled = plan_tiles(721, 721, settings)
    assert (tiled.rows, tiled.columns, tiled.thumbnail is not None) == (2, 2, True)


def test_pitfall_2_05_tiling_goes_by_area_not_by_side(pair_of: PairOf):
    settings = pair_of("LFM2.5-VL-1.6B").vlm.model.config.images
    grids = {size: plan_tiles(*size, settings) for size in [(1376, 768), (1024, 512), (1024, 529), (8192, 16)]}
    assert {size: (grid.rows, grid.columns) for size, grid in grids.items()} == {
        (1376, 768): (2, 4),
        (1024, 512): (1, 1),
        (1024, 529): (1, 2),
        (8192, 16): (1, 1),
    }


def test_pitfall_2_06_the_image_token_is_the_checkpoint_s(pair_of: PairOf, tmp_path: Path):
    """The largest checkpoint has another id than the others; whatever the file says is used."""
    assert layout("LFM2.5-VL-3B").special_tokens.image_id == 124907
    pair = pair_of("LFM2.5-VL-3B")
    image_id = pair.vlm.model.config.image_token_id
    assert image_id == pair.model.config.image_token_id != 396
    assert pair.prompt([user(shown(picture(512, 512)))]).token_ids.count(image_id) == 256
    folder = copy_of(pair, tmp_path)
    edit_json(folder / "config.json", image_token_id=...)
    with pytest.raises(CheckpointError, match=f"396, is .* set image_token_id to {image_id}"):
        foveate.load(folder, device="cpu")


def test_pitfall_2_07_the_checkpoint_s_own_image_settings_are_read(pair_of: PairOf, tmp_path: Path):
    assert "<|img_thumbnail|>" in image_markers(pair_of("LFM2.5-VL-1.6B"), 1376, 768)
    assert "<|img_thumbnail|>" not in image_markers(pair_of("LFM2-VL-450M"), 1376, 768)
    folder = copy_of(pair_of("LFM2.5-VL-1.6B"), tmp_path)
    edit_json(folder / "processor_config.json", "image_processor", do_image_splitting=False)
    pair, messages = load_pair(folder), [user(shown(picture(1376, 768)))]
    assert image_markers(pair, 1376, 768) == ["<|image_start|>", "<|image_end|>"]
    assert pair.prompt(messages).token_ids == pair.inputs(messages)["input_ids"][0].tolist()


def test_pitfall_2_08_a_user_s_text_never_turns_into_a_special_token(pair_of: PairOf):
    """The reference takes it for a placeholder, or refuses the whole conversation."""
    pair = pair_of("LFM2.5-VL-1.6B")
    image_id, text = pair.vlm.model.config.image_token_id, "What do <image> and <|im_end|> mean in HTML?"
    ids = pair.prompt([user(text)]).token_ids
    assert image_id not in ids
    assert text in pair.vlm.processor.decode(ids)
    assert image_id not in pair.prompt([user("<ima", "ge>")]).token_ids
    ids = pair.prompt([user(shown(picture(512, 512)), text)]).token_ids
    assert ids.count(image_id) == 256
    with pytest.raises(ValueError, match="image"):
        pair.inputs([user(shown(picture(512, 512)), text)])
    theirs = result_or_error(lambda: pair.inputs([user(text)])["input_ids"][0].tolist())
    assert isinstance(theirs, ValueError) or image_id in theirs


def test_pitfall_2_09_no_padding_enters_a_convolution_state(pair_of: PairOf):
    """The reference, padded on the right, decodes the shorter of two prompts wrongly."""
    pair = pair_of("LFM2.5-VL-1.6B")
    prompts = [pair.prompt([user(text)]) for text in ("Hi.", "Tell me of the sea, the river and the bridge.")]
    alone, together = Run(pair.vlm.model, prompts[:1]), Run(pair.vlm.model, prompts)
    alone.prefill(), together.prefill()
    expected = alone.step([900])[0]
    assert relative_error(together.step([900, 900])[0], expected) < FLOAT32_BOUND
    assert relative_error(right_padded_step(pair.model, [prompt.token_ids for prompt in prompts], 900), expected) > 0.01


@pytest.mark.parametrize("chunk_tokens", [1, 2, 3])
def test_pitfall_2_10_a_chunk_shorter_than_the_convolution_state_leaves_it_right(pair_of: PairOf, chunk_tokens: int):
    pair, messages = pair_of("saved by transformers"), [user("Tell me of the sea.")]
    run = Run(pair.vlm.model, [pair.prompt(messages)])
    run.prefill(chunk_tokens)
    whole = {**pair.inputs(messages)}
    ids = torch.cat([whole["input_ids"], torch.tensor([[900]])], 1)
    with torch.inference_mode():
        expected = pair.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1]
    assert relative_error(run.step([900])[0], expected) < FLOAT32_BOUND


def test_pitfall_2_11_the_length_of_another_row_does_not_change_an_answer(pair_of: PairOf):
    vlm = pair_of("LFM2.5-VL-450M").vlm
    row = [user(shown(picture(90, 60)), "What is this?")]
    answers = [vlm.generate([row, [user("the sea " * words)]], ON_AND_ON)[0].token_ids for words in (1, 40, 150)]
    assert answers == [vlm.chat(row, ON_AND_ON).token_ids] * 3


@pytest.mark.parametrize(("size", "tokens"), [((8300, 10), 460), ((10000, 1), 1600), ((20000, 20), None)])
def test_pitfall_2_12_a_picture_too_thin_for_the_bound_is_refused_alone(
    pair_of: PairOf, size: tuple[int, int], tokens: int | None
):
    """The reference makes a tile of more tokens than its bound, or fails with an error about stacking."""
    pair, row = pair_of("LFM2.5-VL-1.6B"), [user(shown(picture(64, 64)))]
    before = pair.vlm.chat(row, ON_AND_ON).token_ids
    with pytest.raises(ImageSizeError, match=r"{}x{} .*too thin.* 256 \(max_image_tokens\)".format(*size)):
        pair.vlm.generate([row, [user(shown(picture(*size)))]], ON_AND_ON)
    assert pair.vlm.chat(row, ON_AND_ON).token_ids == before
    if tokens is None:
        with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
            pair.inputs([user(shown(picture(*size)))])
    else:
        ids = pair.inputs([user(shown(picture(*size)))])["input_ids"]
        assert int((ids == pair.model.config.image_token_id).sum()) == tokens


def test_pitfall_2_13_a_grid_of_one_tile_has_as_many_placeholders_as_features(pair_of: PairOf):
    """The reference counts the tile it would have made without splitting, and then refuses its own count."""
    pair, messages = pair_of("LFM2.5-VL-3B"), [user(shown(picture(721, 727)))]
    prompt, inputs = pair.prompt(messages), pair.inputs(messages)
    (features,) = features_of(pair.vlm.model, [prompt])
    assert prompt.token_ids.count(pair.vlm.model.config.image_token_id) == len(features) == 256
    assert relative_error(features, reference_features(pair.model, inputs)) < FLOAT32_BOUND
    assert int((inputs["input_ids"] == pair.model.config.image_token_id).sum()) == 240
    with pytest.raises(ValueError, match="do not match, tokens: 240, features: 256"):
        pair.logits(inputs)


@pytest.mark.parametrize("name", FORMATS)
def test_pitfall_2_14_every_kind_of_pixels_is_seen_as_its_rgb(pair_of: PairOf, name: str):
    """The reference is wrong about the same picture without a word, or raises."""
    pair, (source, as_rgb, pillow) = pair_of("LFM2.5-VL-1.6B"), FORMATS[name]()
    expected = pair.prompt([user(shown(as_rgb))]).images[0].patches
    assert torch.equal(pair.prompt([user(shown(source))]).images[0].patches, expected)
    theirs = result_or_error(lambda: patches_in(pair.inputs([user(shown(pillow))])))
    assert isinstance(theirs, Exception) or not torch.equal(theirs, expected)


def test_pitfall_2_15_a_switched_off_projector_norm_loads_with_or_without_its_weights(pair_of: PairOf, tmp_path: Path):
    pair = pair_of("LFM2.5-VL-1.6B")
    prompt = pair.prompt([user(shown(picture(64, 64)))])
    (expected,) = features_of(pair.vlm.model, [prompt])
    folder = copy_of(pair, tmp_path)
    norm = {f"{LAYER_NORM}.{part}": torch.randn(576) for part in ("weight", "bias")}
    edit_tensors(folder, lambda tensors: tensors.update(norm))
    both = load_pair(folder)
    (features,) = features_of(both.vlm.model, [prompt])
    assert torch.equal(features, expected)
    inputs = both.inputs([user(shown(picture(64, 64)))])
    assert relative_error(features, reference_features(both.model, inputs)) < FLOAT32_BOUND


def test_pitfall_2_15_weights_of_the_projector_norm_that_are_missing_or_of_no_use_are_named(
    pair_of: PairOf, tmp_path: Path
):
    folder = copy_of(pair_of("LFM2-VL-3B"), tmp_path)
    edit_tensors(folder, lambda tensors: [tensors.pop(f"{LAYER_NORM}.{part}") for part in ("weight", "bias")])
    with pytest.raises(CheckpointError, match=r"2 tensors are missing: multi_modal_projector\.layer_norm\.weight"):
        foveate.load(folder, device="cpu")
    edit_tensors(folder, lambda tensors: tensors.update({f"{LAYER_NORM}_2.weight": torch.randn(8)}))
    with pytest.raises(CheckpointError, match=rf"1 tensors have no place in this model: {LAYER_NORM}_2\.weight"):
        foveate.load(folder, device="cpu")


@pytest.mark.parametrize("model_type", ["lfm2-vl", "lfm2_vl"])
@pytest.mark.parametrize("name", ["LFM2-VL-450M", "LFM2.5-VL-450M"])
def test_pitfall_2_15_both_spellings_of_the_model_type_load(
    pair_of: PairOf, tmp_path: Path, name: str, model_type: str
):
    pair, messages = pair_of(name), [user(shown(picture(64, 64)))]
    folder = copy_of(pair, tmp_path)
    edit_json(folder / "config.json", model_type=model_type)
    vlm = foveate.load(folder, device="cpu")
    assert vlm.chat(messages, ON_AND_ON).token_ids == pair.vlm.chat(messages, ON_AND_ON).token_ids


@pytest.mark.parametrize("place", [0, 1, 2])
def test_pitfall_2_16_features_go_where_their_picture_stands(pair_of: PairOf, place: int):
    """Before, between and after the texts, with another picture at the end."""
    pair = pair_of("LFM2.5-VL-1.6B")
    parts: list[object] = ["OCR.", "Read the page."]
    parts.insert(place, shown(picture(64, 64)))
    messages = [user(*parts, shown(picture(60, 200)))]
    prompt, model = prompt_of(pair.vlm, messages), pair.vlm.model
    (features,) = features_of(model, [prompt])
    is_placeholder = torch.tensor(prompt.token_ids) == model.config.image_token_id
    rows = model.embed(prompt.token_ids, features)
    assert torch.equal(rows[is_placeholder], features)
    assert torch.equal(rows[~is_placeholder], model.embed(prompt.token_ids, None)[~is_placeholder])
    expected = pair.logits(pair.inputs(messages))
    assert relative_error(Run(model, [prompt]).prefill()[0], expected) < FLOAT32_BOUND


def test_the_document_names_each_of_these_tests():
    document = (Path(__file__).parents[2] / "docs" / "pitfalls.md").read_text(encoding="utf-8")
    tests = {name.removeprefix("test_pitfall_") for name in globals() if name.startswith("test_pitfall_")}
    assert set(re.findall(r"`(2_\d\d_\w+)`", document)) == tests

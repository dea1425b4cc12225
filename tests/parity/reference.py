"""The reference: transformers' own model and processor of a checkpoint folder, beside Foveate's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import (
    AutoProcessor,
    BatchFeature,
    Cache,
    Lfm2VlConfig,
    Lfm2VlForConditionalGeneration,
    Lfm2VlImageProcessor,
    Lfm2VlProcessor,
    PreTrainedTokenizerFast,
)

import foveate
from foveate.models.lfm2_vl.processing import Prompt

Result = TypeVar("Result")

PICTURE_KEYS = ("pixel_values", "spatial_shapes", "pixel_attention_mask")
# What the first checkpoints keep flat in processor_config.json, where transformers' own loader does not look for it.
FLAT_KEYS = (
    "do_image_splitting",
    "downsample_factor",
    "encoder_patch_size",
    "max_image_tokens",
    "max_pixels_tolerance",
    "max_tiles",
    "min_image_tokens",
    "min_tiles",
    "tile_size",
    "use_thumbnail",
)


@dataclass(frozen=True)
class Pair:
    """Foveate and transformers with the same checkpoint, both in float32 on the CPU."""

    folder: Path
    vlm: foveate.VLM
    model: Lfm2VlForConditionalGeneration
    processor: Lfm2VlProcessor

    def prompt(self, messages: list[dict[str, Any]]) -> Prompt:
        """Foveate's token ids and patches of a conversation."""
        return prompt_of(self.vlm, messages)

    def inputs(self, messages: list[dict[str, Any]]) -> BatchFeature:
        """The reference's inputs of a conversation, one row."""
        text = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        images = pictures_in(messages)
        return self.processor(images=[images] if images else None, text=[text], return_tensors="pt")

    @torch.inference_mode()
    def logits(self, inputs: BatchFeature) -> torch.Tensor:
        """The reference's logits of a conversation's last token, `[vocab_size]`."""
        return self.model(**inputs).logits[0, -1].float()

    @torch.inference_mode()
    def greedy(self, inputs: BatchFeature, count: int) -> list[int]:
        """The reference's likeliest next tokens; the model of a pair never stops early."""
        ids = self.model.generate(**inputs, max_new_tokens=count, do_sample=False)
        return ids[0, inputs["input_ids"].shape[1] :].tolist()


def prompt_of(vlm: foveate.VLM, messages: list[dict[str, Any]]) -> Prompt:
    """Foveate's token ids and patches of a conversation."""
    processor = vlm.processor
    return processor.encode(messages, processor.patches(processor.load_images(messages)))


def pictures_in(messages: list[dict[str, Any]]) -> list[Any]:
    """The pictures of a conversation, in order."""
    parts = [part for message in messages if not isinstance(message["content"], str) for part in message["content"]]
    return [part["image"] for part in parts if part["type"] == "image"]


def patches_in(inputs: BatchFeature) -> torch.Tensor:
    """The patch rows of the reference's inputs without its padding, `[patches, patch_width]`."""
    tiles = zip(inputs["pixel_values"], inputs["pixel_attention_mask"], strict=True)
    return torch.cat([tile[mask.bool()] for tile, mask in tiles])


def result_or_error(action: Callable[[], Result]) -> Result | Exception:
    """What the reference does where it is wrong differs between versions: the result, or the error it raised."""
    try:
        return action()
    except (ValueError, RuntimeError) as error:
        return error


@torch.inference_mode()
def reference_features(model: Lfm2VlForConditionalGeneration, inputs: Mapping[str, Any]) -> torch.Tensor:
    """The reference's image features, `[image tokens, hidden_size]`."""
    return torch.cat(list(model.get_image_features(**{name: inputs[name] for name in PICTURE_KEYS}).pooler_output))


@torch.inference_mode()
def patch_rows(model: Lfm2VlForConditionalGeneration, inputs: Mapping[str, Any]) -> torch.Tensor:
    """What the reference's vision tower makes of each patch, `[tiles, padded patches, width]`."""
    return model.model.vision_tower(**{name: inputs[name] for name in PICTURE_KEYS}).last_hidden_state


@torch.inference_mode()
def right_padded_step(model: Lfm2VlForConditionalGeneration, prompts: list[list[int]], token: int) -> torch.Tensor:
    """The reference's logits `[vocab_size]` of `token` after the first of several prompts, padded on the right."""
    lengths = torch.tensor([len(ids) for ids in prompts])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    ids = torch.zeros_like(mask).masked_scatter(mask.bool(), torch.tensor([token for ids in prompts for token in ids]))
    first = model(input_ids=ids, attention_mask=mask, use_cache=True)
    # The cache's name differs between versions.
    cache = {name: value for name, value in first.items() if isinstance(value, Cache)}
    step = {
        "input_ids": torch.full((len(prompts), 1), token),
        "attention_mask": torch.cat([mask, torch.ones(len(prompts), 1, dtype=mask.dtype)], 1),
        "position_ids": lengths[:, None],
    }
    return model(**step, **cache).logits[0, -1]


def load_pair(folder: Path) -> Pair:
    """Load a checkpoint folder with both."""
    return Pair(folder, foveate.load(folder, device="cpu"), reference_model(folder), reference_processor(folder))


def reference_model(folder: Path, dtype: torch.dtype = torch.float32) -> Lfm2VlForConditionalGeneration:
    """Load the reference's model, made to answer on and on as `ignore_stop_tokens` does."""
    config = Lfm2VlConfig.from_pretrained(folder)
    # transformers no longer drops the vision layers behind `vision_feature_layer`; the file does not hold them.
    config.vision_config.num_hidden_layers += 1 + json.loads((folder / "config.json").read_text()).get(
        "vision_feature_layer", -1
    )
    model = Lfm2VlForConditionalGeneration.from_pretrained(folder, config=config, dtype=dtype)
    model.generation_config.eos_token_id = None
    return model.eval()


def reference_processor(folder: Path) -> Lfm2VlProcessor:
    """Load the reference's processor; of the first checkpoints' form it is put together by hand."""
    flat = json.loads((folder / "processor_config.json").read_text()) if is_first_form(folder) else None
    if flat is None:
        return AutoProcessor.from_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    image_processor = Lfm2VlImageProcessor(**{key: flat[key] for key in FLAT_KEYS})
    return Lfm2VlProcessor(image_processor, tokenizer, chat_template=tokenizer.chat_template)


def is_first_form(folder: Path) -> bool:
    """Whether a folder has the tiling flat in processor_config.json."""
    file = folder / "processor_config.json"
    return file.exists() and "image_processor" not in json.loads(file.read_text())


def save_by_transformers(folder: Path, tokenizer_folder: Path) -> Path:
    """Make a checkpoint by transformers alone, of sizes and switches that no public checkpoint has."""
    torch.manual_seed(0)
    vocabulary_tokens = json.loads((tokenizer_folder / "config.json").read_text())["text_config"]["vocab_size"]
    config = Lfm2VlConfig(
        vision_config={"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 3},
        text_config={
            "vocab_size": vocabulary_tokens,
            "hidden_size": 96,
            "intermediate_size": 200,
            "num_hidden_layers": 5,
            "layer_types": ["full_attention", "conv", "conv", "full_attention", "conv"],
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "conv_L_cache": 4,
            "conv_bias": True,
            "norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        projector_hidden_size=72,
        projector_bias=False,
        tie_word_embeddings=False,
    )
    model = Lfm2VlForConditionalGeneration(config)
    for parameter in model.parameters():
        # The class's own start values are so small, or so alike, that no answer would depend on the picture.
        parameter.data.add_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    reference_processor(tokenizer_folder).save_pretrained(folder)
    return folder

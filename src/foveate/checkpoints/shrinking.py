"""Small layouts that keep every peculiarity of a large one, for tests and demonstrations on a CPU."""

from dataclasses import dataclass
from typing import Any

from foveate.checkpoints.layout import CheckpointLayout, Json, SpecialTokens
from foveate.errors import ConfigurationError

__all__ = ["shrunk"]

_VOCABULARY_TOKENS = 2048
_ROOM_AFTER_SPECIAL_TOKENS = 64


@dataclass(frozen=True)
class _SmallSizes:
    """The widths that stand for one size of vision tower or text model."""

    hidden: int
    heads: int
    key_value_heads: int
    raw_width: int
    """The feed-forward width before LFM2's adjustment; for a vision tower, its intermediate size."""


_VISION_SIZES = {
    # Head sizes 16 and 72; like 4304, the intermediate size 336 is a multiple of 16 but not of 32.
    768: _SmallSizes(hidden=64, heads=4, key_value_heads=4, raw_width=256),
    1152: _SmallSizes(hidden=144, heads=2, key_value_heads=2, raw_width=336),
}
_TEXT_SIZES = {
    # Two or four query heads to a key head, as in the large model; 208 is adjusted to 138 and rounded up to 160, as
    # 6656 is to 4437 and 4608, while 384 comes out even and 336 is not adjusted at all.
    (1024, 6656): _SmallSizes(hidden=64, heads=4, key_value_heads=2, raw_width=208),
    (2048, 12288): _SmallSizes(hidden=128, heads=8, key_value_heads=2, raw_width=384),
    (2048, 10752): _SmallSizes(hidden=128, heads=4, key_value_heads=1, raw_width=336),
}
_LAYER_TYPES = {
    # The first and last layers of the large patterns: one ends with attention and a convolution, one with two.
    16: ["conv", "conv", "full_attention", "conv", "full_attention", "conv"],
    30: ["conv", "conv", "full_attention", "conv", "full_attention", "conv", "conv"],
}
_PROJECTOR_WIDTHS = {2048: 128, 2560: 160}


def shrunk(layout: CheckpointLayout, *, name: str | None = None) -> CheckpointLayout:
    """The same layout with small widths, few layers and 2,048 tokens: under 5 MB in bfloat16.

    What sets checkpoints apart stays: the form of the files, the projector's LayerNorm, a dropped vision layer, the
    feed-forward adjustment, the ratio of query to key heads, both kinds of layer, tiling and resampling, and special
    tokens at the start of the vocabulary or near its end.

    Raises:
        ConfigurationError: the layout is not one of the public sizes, or is small already.
    """
    text, vision = layout.text, layout.vision
    try:
        text_sizes = _TEXT_SIZES[text["hidden_size"], text["intermediate_size"]]
        vision_sizes = _VISION_SIZES[vision["hidden_size"]]
        layer_types = _LAYER_TYPES[text["num_hidden_layers"]]
        projector_width = _PROJECTOR_WIDTHS[layout.config["projector_hidden_size"]]
    except KeyError as missing:
        raise ConfigurationError(
            f"cannot shrink {layout.name!r}: there is no small size for {missing}; shrink a public layout"
        ) from None
    tokens = _moved_tokens(layout)
    config = {
        **layout.config,
        "projector_hidden_size": projector_width,
        "text_config": _small_text(text, text_sizes, layer_types, layout.special_tokens, tokens),
        "vision_config": _small_vision(
            vision, vision_sizes, dropped=int(vision["num_hidden_layers"]) - layout.vision_layers_stored
        ),
    }
    image_token_key = "image_token_id" if "image_token_id" in config else "image_token_index"
    config[image_token_key] = tokens.image_id
    ids = {"bos_token_id": tokens.beginning_id, "eos_token_id": tokens.end_id, "pad_token_id": tokens.pad_id}
    return CheckpointLayout(
        name=name or f"{layout.name}-shrunk",
        config=config,
        generation={**layout.generation, **ids},
        processor=layout.processor,
        preprocessor=layout.preprocessor,
        special_tokens=tokens,
    )


def _moved_tokens(layout: CheckpointLayout) -> SpecialTokens:
    tokens = layout.special_tokens
    if tokens.last_id + _ROOM_AFTER_SPECIAL_TOKENS < _VOCABULARY_TOKENS:
        return tokens
    shift = tokens.last_id + 1 - (_VOCABULARY_TOKENS - _ROOM_AFTER_SPECIAL_TOKENS)
    return SpecialTokens(first_id=tokens.first_id - shift, image_id=tokens.image_id - shift)


def _small_text(
    text: Json, sizes: _SmallSizes, layer_types: list[str], old: SpecialTokens, new: SpecialTokens
) -> dict[str, Any]:
    moved = {old.beginning_id: new.beginning_id, old.end_id: new.end_id, old.pad_id: new.pad_id}
    ids = {key: moved[text[key]] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in text}
    return {
        **text,
        **ids,
        "block_dim": sizes.hidden,
        "block_ff_dim": sizes.raw_width,
        "block_multiple_of": 32,
        "conv_dim": sizes.hidden,
        "conv_dim_out": sizes.hidden,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.raw_width,
        "layer_types": layer_types,
        "num_attention_heads": sizes.heads,
        "num_heads": sizes.heads,
        "num_hidden_layers": len(layer_types),
        "num_key_value_heads": sizes.key_value_heads,
        "vocab_size": _VOCABULARY_TOKENS,
    }


def _small_vision(vision: Json, sizes: _SmallSizes, *, dropped: int) -> dict[str, Any]:
    return {
        **vision,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.raw_width,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": 2 + dropped,
    }

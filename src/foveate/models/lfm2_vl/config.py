"""What a checkpoint says about its model, checked once and frozen. Nothing here has a default of Foveate's own.

`config.json` is read through transformers' configuration classes, which know the old spellings (`block_ff_dim`,
`rope_theta`, `full_attn_idxs`, …); the image settings come from the checkpoint's processor files (see
`image_settings`).
"""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import Lfm2VlConfig as ReferenceConfig

from foveate.errors import CheckpointError
from foveate.models.json_files import read_json, read_optional_json
from foveate.models.lfm2_vl.activations import activation
from foveate.models.lfm2_vl.image_settings import ImageSettings, read_image_settings

LayerKind = Literal["conv", "full_attention"]
MOST_LAYERS = 512
MODEL_TYPES = ("lfm2_vl", "lfm2-vl")
_MOST = 2**31  # no side of a tensor comes near it, so a number beyond is a slip


@dataclass(frozen=True)
class VisionConfig:
    """The SigLIP2 NaFlex tower."""

    hidden_size: int
    """Width of one patch row."""
    intermediate_size: int
    """Width inside the MLP."""
    num_layers: int
    """Encoder layers that run; a checkpoint may hold more, which `vision_feature_layer` drops."""
    num_heads: int
    """Attention heads."""
    patch_size: int
    """Side of a patch, in pixels."""
    num_channels: int
    """Channels of a pixel."""
    position_grid: int
    """Side of the square position table, in patches."""
    norm_eps: float
    """Epsilon of every LayerNorm in the tower."""
    activation: str
    """Name of the MLP's activation."""

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_heads

    @property
    def patch_width(self) -> int:
        """Values of one patch: patch_size x patch_size x num_channels."""
        return self.patch_size * self.patch_size * self.num_channels


@dataclass(frozen=True)
class ProjectorConfig:
    """The pixel-unshuffle projector."""

    downsample_factor: int
    """Side of the block of patches that becomes one image token."""
    hidden_size: int
    """Width between the two linear layers."""
    use_layernorm: bool
    """Whether a LayerNorm stands before the first (LFM2-VL) or not (LFM2.5-VL)."""
    bias: bool
    """Whether the linear layers have biases."""
    activation: str
    """Name of the activation between them."""


@dataclass(frozen=True)
class LanguageConfig:
    """The LFM2 language model."""

    vocab_size: int
    """Rows of the embedding table."""
    hidden_size: int
    """Width of one token row."""
    feed_forward_size: int
    """True width inside the gated FFN, after the adjustment that `intermediate_size` is raw for."""
    layer_kinds: tuple[LayerKind, ...]
    """For each layer, short convolution or grouped-query attention."""
    num_heads: int
    """Query heads."""
    num_key_value_heads: int
    """Key and value heads."""
    head_size: int
    """Width of one head."""
    conv_taps: int
    """Kernel length of the short convolution."""
    conv_bias: bool
    """Whether the convolution and its projections have biases."""
    norm_eps: float
    """Epsilon of every RMSNorm."""
    rope_theta: float
    """Base of the rotary position embedding."""
    max_positions: int
    """Longest sequence the checkpoint declares, in tokens."""
    tie_embeddings: bool
    """Whether the output head is the embedding table."""


@dataclass(frozen=True)
class ModelConfig:
    """A whole LFM2-VL checkpoint."""

    vision: VisionConfig
    projector: ProjectorConfig
    language: LanguageConfig
    images: ImageSettings
    image_token_id: int
    """The placeholder that image features replace."""
    stop_token_ids: frozenset[int]
    """Tokens that end an answer."""
    dtype: str
    """The type the checkpoint was saved in, such as `bfloat16`."""


def read_model_config(folder: Path) -> ModelConfig:
    """Read and check `config.json`, `generation_config.json` and the processor files of `folder`.

    Raises CheckpointError when a file is missing or not JSON, the model type is another, or values do not fit
    together.
    """
    raw = read_json(folder / "config.json")
    model_type = raw.get("model_type")
    if model_type not in MODEL_TYPES:
        raise CheckpointError(
            f"{folder / 'config.json'}: model_type is {model_type!r}; Foveate runs {' and '.join(MODEL_TYPES)}"
        )
    reference = reference_config(raw, folder)
    try:
        config = _model_config(raw, reference, folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / 'config.json'}: a value is of a wrong type or size: {error}") from error
    _check(config, folder)
    return config


def _model_config(raw: dict[str, Any], reference: Any, folder: Path) -> ModelConfig:
    return ModelConfig(
        vision=_vision(reference.vision_config, raw.get("vision_feature_layer", -1)),
        projector=_projector(reference),
        language=_language(reference.text_config, bool(reference.tie_word_embeddings)),
        images=read_image_settings(folder, raw),
        image_token_id=int(raw.get("image_token_id", raw.get("image_token_index", reference.image_token_id))),
        stop_token_ids=_stop_tokens(folder, reference),
        dtype=str(raw.get("dtype") or raw.get("torch_dtype") or raw.get("text_config", {}).get("dtype") or "float32"),
    )


def reference_config(raw: dict[str, Any], folder: Path) -> ReferenceConfig:
    """Return transformers' own configuration of a raw `config.json`, whatever the spelling of its keys."""
    known = {key: value for key, value in raw.items() if key not in ("model_type", "auto_map")}
    if "image_token_index" in known:
        known.setdefault("image_token_id", known.pop("image_token_index"))
    try:
        config = ReferenceConfig(**json.loads(json.dumps(known)))
    except (ArithmeticError, AttributeError, LookupError, StrictDataclassError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())  # several lines, now and then
        raise CheckpointError(f"{folder / 'config.json'}: transformers does not accept it: {reason}") from error
    for part, expected in ((config.vision_config, "siglip2_vision_model"), (config.text_config, "lfm2")):
        if part.model_type != expected:
            raise CheckpointError(f"{folder / 'config.json'}: a part is {part.model_type!r}; Foveate runs {expected!r}")
    return config


def _vision(raw: Any, feature_layer: int) -> VisionConfig:
    grid = round(raw.num_patches**0.5)
    if grid * grid != raw.num_patches:
        raise CheckpointError(f"vision_config.num_patches is {raw.num_patches}; it must be a square number")
    layers = raw.num_hidden_layers
    used = feature_layer if feature_layer >= 0 else layers + 1 + feature_layer
    if type(used) is not int or not 0 < used <= layers:
        raise CheckpointError(
            f"vision_feature_layer is {feature_layer}, with {layers} vision layers none would be left"
        )
    return VisionConfig(
        hidden_size=raw.hidden_size,
        intermediate_size=raw.intermediate_size,
        num_layers=used,
        num_heads=raw.num_attention_heads,
        patch_size=raw.patch_size,
        num_channels=raw.num_channels,
        position_grid=grid,
        norm_eps=raw.layer_norm_eps,
        activation=raw.hidden_act,
    )


def _projector(raw: Any) -> ProjectorConfig:
    return ProjectorConfig(
        downsample_factor=raw.downsample_factor,
        hidden_size=raw.projector_hidden_size,
        use_layernorm=raw.projector_use_layernorm,
        bias=raw.projector_bias,
        activation=raw.projector_hidden_act,
    )


def _language(raw: Any, tie_embeddings: bool) -> LanguageConfig:
    rope = raw.rope_parameters or {}
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(f"text_config.rope_parameters.rope_type is {rope['rope_type']!r}; LFM2 uses 'default'")
    return LanguageConfig(
        vocab_size=raw.vocab_size,
        hidden_size=raw.hidden_size,
        feed_forward_size=feed_forward_size(raw),
        layer_kinds=tuple(raw.layer_types),
        num_heads=raw.num_attention_heads,
        num_key_value_heads=raw.num_key_value_heads,
        head_size=getattr(raw, "head_dim", None) or raw.hidden_size // raw.num_attention_heads,
        conv_taps=raw.conv_L_cache,
        conv_bias=raw.conv_bias,
        norm_eps=raw.norm_eps,
        rope_theta=float(rope["rope_theta"]),
        max_positions=raw.max_position_embeddings,
        tie_embeddings=tie_embeddings,
    )


def feed_forward_size(raw: Any) -> int:
    """Return the FFN width that `intermediate_size` stands for (6656 means 4608 in LFM2-350M).

    Source: `Lfm2MLP.__init__` in transformers.
    """
    width = int(raw.intermediate_size)
    if not raw.block_auto_adjust_ff_dim:
        return width
    width = int(2 * width / 3)
    if raw.block_ffn_dim_multiplier is None:
        return width
    width = int(raw.block_ffn_dim_multiplier * width)
    multiple = int(raw.block_multiple_of)
    return multiple * ((width + multiple - 1) // multiple)


def _stop_tokens(folder: Path, reference: Any) -> frozenset[int]:
    value = read_optional_json(folder / "generation_config.json").get("eos_token_id")
    if value is None:
        value = reference.text_config.eos_token_id
    ids = value if isinstance(value, list) else [value] if value is not None else []
    if not all(isinstance(token, int) for token in ids):
        raise CheckpointError(f"{folder / 'generation_config.json'}: eos_token_id is {value!r}; give one id or several")
    return frozenset(ids)


def _check(config: ModelConfig, folder: Path) -> None:
    vision, language = config.vision, config.language
    layers = max(vision.num_layers, len(language.layer_kinds))
    if layers > MOST_LAYERS:
        raise CheckpointError(f"{folder / 'config.json'}: {layers} layers; at most {MOST_LAYERS} are built")
    for section, part in (("vision_config", vision), ("projector", config.projector), ("text_config", language)):
        _check_values(f"{folder / 'config.json'}: {section}", part)
    for name, size, heads in (
        ("vision_config.hidden_size", vision.hidden_size, vision.num_heads),
        ("text_config.num_attention_heads", language.num_heads, language.num_key_value_heads),
    ):
        if heads < 1 or size % heads:
            raise CheckpointError(f"{folder / 'config.json'}: {name} is {size}, not a multiple of {heads} heads")
    unknown = set(language.layer_kinds) - {"conv", "full_attention"}
    if unknown:
        raise CheckpointError(f"{folder / 'config.json'}: layer types {sorted(unknown)} are not LFM2's")
    if not 0 <= config.image_token_id < language.vocab_size:
        raise CheckpointError(
            f"{folder / 'config.json'}: image_token_id {config.image_token_id} is outside the vocabulary of"
            f" {language.vocab_size}"
        )
    if (
        config.images.patch_size != vision.patch_size
        or config.images.downsample_factor != config.projector.downsample_factor
    ):
        raise CheckpointError(
            f"{folder}: the processor files and config.json differ in patch size or downsample factor"
        )


def _check_values(where: str, part: Any) -> None:
    for field in fields(part):
        value = getattr(part, field.name)
        if type(value) is int and not 1 <= value < _MOST:
            raise CheckpointError(f"{where}: {field.name} is {value}; it must be at least 1 and below {_MOST}")
        if type(value) is float and not 0 <= value < math.inf:
            raise CheckpointError(f"{where}: {field.name} is {value}; it must be at least 0, and finite")
        if field.name == "activation":
            try:
                known = activation(value)
            except (KeyError, TypeError):
                raise CheckpointError(f"{where}: {value!r} is no activation that transformers knows") from None
            if isinstance(known, nn.Module) and any(True for _ in (*known.parameters(), *known.buffers())):
                raise CheckpointError(f"{where}: the activation {value!r} has weights of its own; Foveate loads none")

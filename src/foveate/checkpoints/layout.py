"""What a checkpoint of LFM2-VL consists of, besides the numbers in its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CheckpointLayout", "Json", "SpecialTokens"]

Json = Mapping[str, Any]

_MARKERS = (
    "<|pad|>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<|fim_pre|>",
    "<|fim_mid|>",
    "<|fim_suf|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tool_list_start|>",
    "<|tool_list_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_response_start|>",
    "<|tool_response_end|>",
)
_MAX_TILES_PER_SIDE = 10
_TILE_MARKERS = tuple(
    f"<|img_row_{row}_col_{column}|>"
    for row in range(1, _MAX_TILES_PER_SIDE + 1)
    for column in range(1, _MAX_TILES_PER_SIDE + 1)
)
_IMAGE_TOKENS = ("<image>", *_TILE_MARKERS, "<|img_thumbnail|>", "<|image_start|>", "<|image_end|>", "<|image_split|>")


@dataclass(frozen=True)
class SpecialTokens:
    """Where the special tokens lie in the vocabulary: two runs of fixed order, and reserved tokens between them."""

    first_id: int
    """The id of the padding token; the other control tokens follow it."""

    image_id: int
    """The id of `<image>`; tile markers (row by row), thumbnail, start, end and split markers follow it."""

    @property
    def pad_id(self) -> int:
        """The id of `<|pad|>`."""
        return self.first_id

    @property
    def beginning_id(self) -> int:
        """The id of `<|startoftext|>`, which begins every prompt."""
        return self.first_id + 1

    @property
    def end_id(self) -> int:
        """The id of `<|im_end|>`, which ends every turn and every answer."""
        return self.first_id + _MARKERS.index("<|im_end|>")

    @property
    def last_id(self) -> int:
        """The highest id of a special token."""
        return self.image_id + len(_IMAGE_TOKENS) - 1

    def by_id(self) -> dict[int, str]:
        """Every special token's text by its id, in ascending order of ids, without gaps."""
        tokens = {self.first_id + offset: text for offset, text in enumerate(_MARKERS)}
        tokens |= {number: f"<|reserved_{number}|>" for number in range(self.first_id + len(_MARKERS), self.image_id)}
        return tokens | {self.image_id + offset: text for offset, text in enumerate(_IMAGE_TOKENS)}


@dataclass(frozen=True)
class CheckpointLayout:
    """A checkpoint's configuration files and ids: all that fixes the names and shapes of its tensors.

    The mappings are the JSON of the files and are meant to be read only; `copy.deepcopy` one before changing it.
    """

    name: str
    """The name on the hub, without the organisation; "tiny" and "…-shrunk" exist only here."""

    config: Json
    """config.json."""

    generation: Json
    """generation_config.json."""

    processor: Json | None
    """processor_config.json, or None where the checkpoint has none."""

    preprocessor: Json | None
    """preprocessor_config.json, or None where processor_config.json holds all of it."""

    special_tokens: SpecialTokens
    """Where the special tokens lie in the vocabulary."""

    @property
    def vision(self) -> Json:
        """The `vision_config` of config.json."""
        section: Json = self.config["vision_config"]
        return section

    @property
    def text(self) -> Json:
        """The `text_config` of config.json."""
        section: Json = self.config["text_config"]
        return section

    @property
    def vocabulary_tokens(self) -> int:
        """Rows of the embedding table, which is also the output head."""
        return int(self.text["vocab_size"])

    @property
    def vision_layers_stored(self) -> int:
        """Vision layers in the tensor file: those after `vision_feature_layer` are dropped before saving."""
        layers = int(self.vision["num_hidden_layers"])
        return layers + 1 + int(self.config.get("vision_feature_layer", -1))

    @property
    def projector_has_norm(self) -> bool:
        """Whether a LayerNorm comes before the projector's first matrix; true where the configuration is silent."""
        return bool(self.config.get("projector_use_layernorm", True))

    @property
    def feed_forward_width(self) -> int:
        """The real width of the text model's feed-forward layers, after the adjustment LFM2 makes to the raw width."""
        text = self.text
        width = int(text.get("block_ff_dim", text["intermediate_size"]))
        if not text["block_auto_adjust_ff_dim"]:
            return width
        width = int(text["block_ffn_dim_multiplier"] * int(2 * width / 3))
        multiple = int(text["block_multiple_of"])
        return -(-width // multiple) * multiple

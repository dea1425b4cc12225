"""The names and shapes of a checkpoint's tensors, derived from its configuration."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from foveate.checkpoints.layout import CheckpointLayout
from foveate.errors import ConfigurationError

__all__ = ["TensorNames", "TensorSpec", "inventory"]

TensorNames = Literal["official", "transformers"]

_VISION = "model.vision_tower.vision_model"
_PROJECTOR = "model.multi_modal_projector"
_TEXT = "model.language_model"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a checkpoint."""

    name: str
    """The name in the published files, where the tower's tensors stand under `model.vision_tower.vision_model`."""

    shape: tuple[int, ...]
    """Rows first, as torch stores a linear layer: [outputs, inputs]."""

    @property
    def elements(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    def named(self, names: TensorNames) -> str:
        """The name in the published files, or the one that models created and saved by transformers 5 have.

        Raises:
            ConfigurationError: `names` is neither of the two.
        """
        if names == "official":
            return self.name
        if names == "transformers":
            return self.name.replace(".vision_tower.vision_model.", ".vision_tower.")
        raise ConfigurationError(f"unknown tensor names {names!r}: choose official or transformers")


def inventory(layout: CheckpointLayout) -> tuple[TensorSpec, ...]:
    """Every tensor of the checkpoint, sorted by published name. The output head is tied, so it is not among them."""
    specs = [*_vision_tensors(layout), *_projector_tensors(layout), *_text_tensors(layout)]
    return tuple(sorted(specs, key=lambda spec: spec.name))


def _affine(name: str, outputs: int, inputs: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (outputs, inputs))
    yield TensorSpec(f"{name}.bias", (outputs,))


def _layer_norm(name: str, width: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (width,))
    yield TensorSpec(f"{name}.bias", (width,))


def _vision_tensors(layout: CheckpointLayout) -> Iterator[TensorSpec]:
    vision = layout.vision
    hidden, intermediate = int(vision["hidden_size"]), int(vision["intermediate_size"])
    patch_values = int(vision["num_channels"]) * int(vision["patch_size"]) ** 2
    yield from _affine(f"{_VISION}.embeddings.patch_embedding", hidden, patch_values)
    yield TensorSpec(f"{_VISION}.embeddings.position_embedding.weight", (int(vision["num_patches"]), hidden))
    for number in range(layout.vision_layers_stored):
        layer = f"{_VISION}.encoder.layers.{number}"
        yield from _layer_norm(f"{layer}.layer_norm1", hidden)
        yield from _layer_norm(f"{layer}.layer_norm2", hidden)
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _affine(f"{layer}.self_attn.{projection}", hidden, hidden)
        yield from _affine(f"{layer}.mlp.fc1", intermediate, hidden)
        yield from _affine(f"{layer}.mlp.fc2", hidden, intermediate)
    yield from _layer_norm(f"{_VISION}.post_layernorm", hidden)


def _projector_tensors(layout: CheckpointLayout) -> Iterator[TensorSpec]:
    inputs = int(layout.vision["hidden_size"]) * int(layout.config["downsample_factor"]) ** 2
    width = int(layout.config["projector_hidden_size"])
    if layout.projector_has_norm:
        yield from _layer_norm(f"{_PROJECTOR}.layer_norm", inputs)
    yield from _affine(f"{_PROJECTOR}.linear_1", width, inputs)
    yield from _affine(f"{_PROJECTOR}.linear_2", int(layout.text["hidden_size"]), width)


def _text_tensors(layout: CheckpointLayout) -> Iterator[TensorSpec]:
    text = layout.text
    hidden, width = int(text["hidden_size"]), layout.feed_forward_width
    yield TensorSpec(f"{_TEXT}.embed_tokens.weight", (layout.vocabulary_tokens, hidden))
    yield TensorSpec(f"{_TEXT}.embedding_norm.weight", (hidden,))
    for number, kind in enumerate(text["layer_types"]):
        layer = f"{_TEXT}.layers.{number}"
        yield TensorSpec(f"{layer}.operator_norm.weight", (hidden,))
        yield TensorSpec(f"{layer}.ffn_norm.weight", (hidden,))
        yield TensorSpec(f"{layer}.feed_forward.w1.weight", (width, hidden))
        yield TensorSpec(f"{layer}.feed_forward.w2.weight", (hidden, width))
        yield TensorSpec(f"{layer}.feed_forward.w3.weight", (width, hidden))
        if kind == "conv":
            yield TensorSpec(f"{layer}.conv.conv.weight", (hidden, 1, int(text["conv_L_cache"])))
            yield TensorSpec(f"{layer}.conv.in_proj.weight", (3 * hidden, hidden))
            yield TensorSpec(f"{layer}.conv.out_proj.weight", (hidden, hidden))
        else:
            yield from _attention_tensors(f"{layer}.self_attn", layout)


def _attention_tensors(name: str, layout: CheckpointLayout) -> Iterator[TensorSpec]:
    hidden = int(layout.text["hidden_size"])
    head = hidden // int(layout.text["num_attention_heads"])
    key_value = head * int(layout.text["num_key_value_heads"])
    yield TensorSpec(f"{name}.q_proj.weight", (hidden, hidden))
    yield TensorSpec(f"{name}.k_proj.weight", (key_value, hidden))
    yield TensorSpec(f"{name}.v_proj.weight", (key_value, hidden))
    yield TensorSpec(f"{name}.out_proj.weight", (hidden, hidden))
    yield TensorSpec(f"{name}.q_layernorm.weight", (head,))
    yield TensorSpec(f"{name}.k_layernorm.weight", (head,))

"""Which tensor of a checkpoint goes into which rows of which parameter.

Names differ between writers: the leading `model.`, the `vision_model.` inside the tower and an inner
`language_model.model.` may be there or not. All are brought to one canonical spelling first. Several tensors may
share one parameter (queries, keys and values; gate and up).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from foveate.models.lfm2_vl.config import LanguageConfig, ModelConfig, ProjectorConfig, VisionConfig


@dataclass(frozen=True)
class WeightTarget:
    """Where one checkpoint tensor goes."""

    parameter: str
    """Name of the parameter in `Lfm2VlModel`."""
    shape: tuple[int, ...]
    """The shape the tensor must have in the checkpoint."""
    first_row: int = 0
    """First row of the parameter that it fills."""

    @property
    def num_rows(self) -> int:
        """Rows of the parameter that it fills."""
        return self.shape[0]


def canonical_name(name: str) -> str:
    """Return a tensor's name without the prefixes that differ between writers."""
    name = name.removeprefix("model.")
    name = name.replace("vision_tower.vision_model.", "vision_tower.", 1)
    return name.replace("language_model.model.", "language_model.", 1)


def weight_targets(config: ModelConfig) -> dict[str, WeightTarget]:
    """Return the target of every tensor that a checkpoint of `config` must hold, by canonical name."""
    targets = dict(_vision_targets(config.vision))
    targets.update(_projector_targets(config.projector, config.vision.hidden_size, config.language.hidden_size))
    targets.update(_language_targets(config.language))
    return targets


def is_expected_surplus(name: str, config: ModelConfig) -> bool:
    """Whether a canonical name belongs to a part that this model does not run, and may be in the file all the same.

    These are vision layers behind the one whose output is used, the tower's pooling head, the projector's LayerNorm
    where the configuration switches it off, a stored copy of a tied head, and buffers that are computed.
    """
    layer = re.match(r"vision_tower\.encoder\.layers\.(\d+)\.", name)
    if layer:
        return int(layer[1]) >= config.vision.num_layers
    tied = config.language.tie_embeddings and name in ("lm_head.weight", "language_model.lm_head.weight")
    switched_off = not config.projector.use_layernorm and name.startswith("multi_modal_projector.layer_norm.")
    pooling = name.startswith("vision_tower.head.")
    return tied or switched_off or pooling or name.endswith((".position_ids", ".inv_freq"))


def _linear(
    name: str, parameter: str, shape: tuple[int, int], *, bias: bool = True
) -> Iterator[tuple[str, WeightTarget]]:
    yield f"{name}.weight", WeightTarget(f"{parameter}.weight", shape)
    if bias:
        yield f"{name}.bias", WeightTarget(f"{parameter}.bias", shape[:1])


def _joined(names: dict[str, int], parameter: str, width: int, *, bias: bool) -> Iterator[tuple[str, WeightTarget]]:
    """Several linear layers, by name and rows, one below the other in a single parameter."""
    first_row = 0
    for name, rows in names.items():
        yield f"{name}.weight", WeightTarget(f"{parameter}.weight", (rows, width), first_row)
        if bias:
            yield f"{name}.bias", WeightTarget(f"{parameter}.bias", (rows,), first_row)
        first_row += rows


def _layer_norm(name: str, parameter: str, width: int) -> Iterator[tuple[str, WeightTarget]]:
    yield f"{name}.weight", WeightTarget(f"{parameter}.weight", (width,))
    yield f"{name}.bias", WeightTarget(f"{parameter}.bias", (width,))


def _vision_targets(config: VisionConfig) -> Iterator[tuple[str, WeightTarget]]:
    width, inner = config.hidden_size, config.intermediate_size
    theirs, ours = "vision_tower", "encoder.tower"
    yield from _linear(f"{theirs}.embeddings.patch_embedding", f"{ours}.patch_embedding", (width, config.patch_width))
    table = WeightTarget(f"{ours}.position.weight", (config.position_grid**2, width))
    yield f"{theirs}.embeddings.position_embedding.weight", table
    yield from _layer_norm(f"{theirs}.post_layernorm", f"{ours}.norm", width)
    for layer in range(config.num_layers):
        a, b = f"{theirs}.encoder.layers.{layer}", f"{ours}.layers.{layer}"
        projections = {f"{a}.self_attn.{part}_proj": width for part in "qkv"}
        yield from _joined(projections, f"{b}.qkv", width, bias=True)
        yield from _linear(f"{a}.self_attn.out_proj", f"{b}.out", (width, width))
        yield from _linear(f"{a}.mlp.fc1", f"{b}.fc1", (inner, width))
        yield from _linear(f"{a}.mlp.fc2", f"{b}.fc2", (width, inner))
        yield from _layer_norm(f"{a}.layer_norm1", f"{b}.attention_norm", width)
        yield from _layer_norm(f"{a}.layer_norm2", f"{b}.mlp_norm", width)


def _projector_targets(config: ProjectorConfig, vision_width: int, width: int) -> Iterator[tuple[str, WeightTarget]]:
    theirs, ours = "multi_modal_projector", "encoder.projector"
    block = vision_width * config.downsample_factor**2
    if config.use_layernorm:
        yield from _layer_norm(f"{theirs}.layer_norm", f"{ours}.norm", block)
    yield from _linear(f"{theirs}.linear_1", f"{ours}.linear_1", (config.hidden_size, block), bias=config.bias)
    yield from _linear(f"{theirs}.linear_2", f"{ours}.linear_2", (width, config.hidden_size), bias=config.bias)


def _language_targets(config: LanguageConfig) -> Iterator[tuple[str, WeightTarget]]:
    width = config.hidden_size
    theirs, ours = "language_model", "language"
    yield f"{theirs}.embed_tokens.weight", WeightTarget(f"{ours}.embedding.weight", (config.vocab_size, width))
    yield f"{theirs}.embedding_norm.weight", WeightTarget(f"{ours}.norm.weight", (width,))
    if not config.tie_embeddings:
        yield "lm_head.weight", WeightTarget(f"{ours}.head.weight", (config.vocab_size, width))
    for layer, kind in enumerate(config.layer_kinds):
        a, b = f"{theirs}.layers.{layer}", f"{ours}.layers.{layer}"
        yield f"{a}.operator_norm.weight", WeightTarget(f"{b}.mixer_norm.weight", (width,))
        yield f"{a}.ffn_norm.weight", WeightTarget(f"{b}.feed_forward_norm.weight", (width,))
        gates = {f"{a}.feed_forward.{part}": config.feed_forward_size for part in ("w1", "w3")}
        yield from _joined(gates, f"{b}.feed_forward.gate_up", width, bias=False)
        down = (width, config.feed_forward_size)
        yield from _linear(f"{a}.feed_forward.w2", f"{b}.feed_forward.down", down, bias=False)
        yield from (_attention_targets if kind == "full_attention" else _convolution_targets)(config, a, f"{b}.mixer")


def _attention_targets(config: LanguageConfig, theirs: str, ours: str) -> Iterator[tuple[str, WeightTarget]]:
    width, head = config.hidden_size, config.head_size
    heads = {"q": config.num_heads, "k": config.num_key_value_heads, "v": config.num_key_value_heads}
    projections = {f"{theirs}.self_attn.{part}_proj": count * head for part, count in heads.items()}
    yield from _joined(projections, f"{ours}.qkv", width, bias=False)
    yield from _linear(f"{theirs}.self_attn.out_proj", f"{ours}.out", (width, config.num_heads * head), bias=False)
    yield f"{theirs}.self_attn.q_layernorm.weight", WeightTarget(f"{ours}.query_norm.weight", (head,))
    yield f"{theirs}.self_attn.k_layernorm.weight", WeightTarget(f"{ours}.key_norm.weight", (head,))


def _convolution_targets(config: LanguageConfig, theirs: str, ours: str) -> Iterator[tuple[str, WeightTarget]]:
    width, bias = config.hidden_size, config.conv_bias
    yield from _linear(f"{theirs}.conv.in_proj", f"{ours}.gates", (3 * width, width), bias=bias)
    yield from _linear(f"{theirs}.conv.out_proj", f"{ours}.out", (width, width), bias=bias)
    yield f"{theirs}.conv.conv.weight", WeightTarget(f"{ours}.weight", (width, 1, config.conv_taps))
    if bias:
        yield f"{theirs}.conv.conv.bias", WeightTarget(f"{ours}.bias", (width,))

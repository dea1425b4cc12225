"""The model's forward pass with gradients: the same modules and weights as `foveate.models.lfm2_vl`, without caches.

Serving runs kernels that have no backward; here every step is plain torch, in bfloat16 under autocast with float32
weights. A test holds the two together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.kernels.rotary import rotary_angles, rotate
from foveate.models.lfm2_vl.language import Attention, LanguageLayer, LanguageModel
from foveate.models.lfm2_vl.layout import packed_layout
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.vision import ImageEncoder, VisionLayer


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what lies between two attentions on CUDA, where some fifty small kernels become a few; compiled once for
    all layers of a kind."""
    compiled = torch.compile(function, dynamic=False)

    @wraps(function)
    def chosen(layer: nn.Module, hidden: Tensor, *rest: Tensor) -> Any:
        return (compiled if hidden.is_cuda else function)(layer, hidden, *rest)

    return chosen


@dataclass(frozen=True)
class PackedExamples:
    """Examples packed without padding, on the device."""

    patches: Tensor
    """`[rows, patch_width]` uint8, tiles one after another."""
    tile_shapes: Tensor
    """`[tiles, 2]` int32."""
    token_ids: Tensor
    """`[tokens]` int64, examples one after another."""
    labels: Tensor
    """`[tokens]` int64: the token that follows, or -100 where it is not to be learned."""
    weights: Tensor
    """`[tokens]` float32: what each label counts."""
    positions: Tensor
    """`[tokens]` int64: position in its example."""
    bounds: Tensor
    """`[examples + 1]` int32: token bounds."""
    feature_rows: Tensor
    """`[image tokens]` int64: the token rows that image features replace, in tile order."""
    glyphs: Tensor
    """`[image tokens, SLOTS]` int8: the characters that each image token covers (see `glyphs`), -1 where not known."""
    longest: int
    """Tokens that no example exceeds."""

    def to(self, device: torch.device) -> "PackedExamples":
        """Return a copy on `device`."""
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return PackedExamples(**moved)

    def pin_memory(self) -> "PackedExamples":
        """Return a copy in pinned memory, from where it goes to the device beside the work there."""
        return PackedExamples(
            **{name: value.pin_memory() if isinstance(value, Tensor) else value for name, value in vars(self).items()}
        )

    def copy(self) -> "PackedExamples":
        """Return a copy in memory of its own."""
        return PackedExamples(
            **{name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(self).items()}
        )

    def copy_(self, other: "PackedExamples") -> None:
        """Take over the values of a batch of the same size."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                value.copy_(getattr(other, name))


@dataclass(frozen=True)
class Losses:
    """What one step minimises, and what it tells."""

    answers: Tensor
    """Cross-entropy of the answers' tokens; an answer counts by the square root of its length."""
    glyphs: Tensor
    """Cross-entropy of the characters under the image tokens."""
    answers_right: Tensor
    """Share of the answers' tokens that are predicted."""
    glyphs_right: Tensor
    """Share of the characters that are named."""

    def detached(self) -> "Losses":
        """Return the values alone."""
        return Losses(**{name: value.detach() for name, value in vars(self).items()})


def losses_of(model: Lfm2VlModel, head: nn.Linear, batch: PackedExamples) -> Losses:
    """Run one batch. `head` turns an image token into SLOTS x CLASSES scores."""
    pixels = (batch.patches.float() - 127.5) / 127.5
    features = encode(model.encoder, pixels, batch.tile_shapes)
    embeddings = F.embedding(batch.token_ids, model.language.embedding.weight)
    embeddings = embeddings.index_copy(0, batch.feature_rows, features.to(embeddings.dtype))
    logits = F.linear(understand(model.language, embeddings, batch), model.language.embedding.weight).float()
    each = F.cross_entropy(logits, batch.labels, reduction="none")  # 0 where nothing is to be learned
    is_learned = batch.labels >= 0
    answers = (each * batch.weights).sum() / (is_learned * batch.weights).sum()
    right = ((logits.argmax(-1) == batch.labels) & is_learned).sum() / is_learned.sum()
    glyphs, glyphs_right = name_glyphs(head, features, batch.glyphs)
    return Losses(answers, glyphs, right, glyphs_right)


def name_glyphs(head: nn.Linear, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of naming the characters under labelled image tokens, and the share that is right."""
    scores = head(features).unflatten(-1, (labels.shape[1], -1)).float()
    wanted = labels.long()
    total = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-1, reduction="sum")
    inked = wanted > 0
    right = ((scores.argmax(-1) == wanted) & inked).sum() / inked.sum().clamp(min=1)
    return total / (wanted >= 0).sum().clamp(min=1), right  # a batch may have no such image token


def encode(encoder: ImageEncoder, pixels: Tensor, tile_shapes: Tensor) -> Tensor:
    """Return image features `[rows / 4, text width]` of packed patches."""
    layout = packed_layout(tile_shapes, pixels.shape[0], encoder.downsample_factor)
    tower = encoder.tower
    hidden = tower.patch_embedding(pixels) + tower.position(layout.patch_grid)
    for layer in tower.layers:
        mixed = packed_sequences(*tile_heads(layer, hidden), layout.bounds, encoder.longest_tile_patches, causal=False)
        hidden = after_tile_attention(layer, hidden, mixed)
    return encoder.projector.forward_with_gather_idx(tower.norm(hidden), layout.gather_index)


@fused
def tile_heads(layer: VisionLayer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each `[rows, heads, head size]`."""
    qkv = layer.qkv(layer.attention_norm(hidden)).unflatten(-1, (3, layer.num_heads, layer.head_size))
    return low(qkv[:, 0]), low(qkv[:, 1]), low(qkv[:, 2])


@fused
def after_tile_attention(layer: VisionLayer, hidden: Tensor, mixed: Tensor) -> Tensor:
    """Return the rows behind a layer."""
    hidden = hidden + layer.out(mixed)
    return hidden + layer.fc2(F.gelu(layer.fc1(layer.mlp_norm(hidden)), approximate="tanh"))


def understand(language: LanguageModel, embeddings: Tensor, batch: PackedExamples) -> Tensor:
    """Return the language model's last hidden rows `[tokens, width]`."""
    config = language.config
    cosine, sine = rotary_angles(batch.positions, config.head_size, config.rope_theta, torch.float32)
    hidden = embeddings
    for layer in language.layers:
        if isinstance(layer.mixer, Attention):
            heads = text_heads(layer, hidden, cosine, sine)
            mixed = packed_sequences(*heads, batch.bounds, batch.longest, causal=True)
            hidden = after_text_attention(layer, hidden, mixed)
        else:
            hidden = convolution_layer(layer, hidden, batch.positions)
    return language.norm(hidden)


@fused
def text_heads(layer: LanguageLayer, hidden: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each `[tokens, heads, head size]`, keys and values once for each query."""
    mixer = layer.mixer
    rows = layer.mixer_norm(hidden)
    query, key, value = mixer.qkv(rows).unflatten(-1, (-1, mixer.head_size)).split(mixer.split, 1)
    query, key = rotate(mixer.query_norm(query), cosine, sine), rotate(mixer.key_norm(key), cosine, sine)
    groups = query.shape[1] // key.shape[1]
    return low(query), low(key.repeat_interleave(groups, 1)), low(value.repeat_interleave(groups, 1))


@fused
def after_text_attention(layer: LanguageLayer, hidden: Tensor, mixed: Tensor) -> Tensor:
    """Return the rows behind a layer of attention."""
    hidden = hidden + layer.mixer.out(mixed)
    return hidden + layer.feed_forward(layer.feed_forward_norm(hidden))


@fused
def convolution_layer(layer: LanguageLayer, hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the rows behind a layer of short convolution, zeros before each example."""
    mixer = layer.mixer
    before, after, content = mixer.gates(layer.mixer_norm(hidden)).chunk(3, -1)
    inputs = before * content
    taps = mixer.weight.shape[1]
    mixed = inputs * mixer.weight[:, taps - 1]
    for back in range(1, taps):
        shifted = F.pad(inputs, (0, 0, back, 0))[: inputs.shape[0]]
        mixed = mixed + shifted * (positions >= back)[:, None] * mixer.weight[:, taps - 1 - back]
    hidden = hidden + mixer.out(after * mixed)
    return hidden + layer.feed_forward(layer.feed_forward_norm(hidden))


def low(heads: Tensor) -> Tensor:
    """Return contiguous heads in the type of FlashAttention on CUDA, and as they are elsewhere."""
    return heads.to(torch.bfloat16).contiguous() if heads.is_cuda else heads


def packed_sequences(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, *, causal: bool
) -> Tensor:
    """Attention inside each packed sequence, `[rows, heads * head_size]`: FlashAttention on CUDA, a loop elsewhere."""
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0) if causal else (-1, -1)
        return varlen_attn(query, key, value, bounds, bounds, longest, longest, window_size=window).flatten(1)
    parts = []
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if first == end:
            continue
        own = (heads[first:end].transpose(0, 1)[None] for heads in (query, key, value))
        parts.append(F.scaled_dot_product_attention(*own, is_causal=causal)[0].transpose(0, 1).flatten(1))
    return torch.cat(parts)

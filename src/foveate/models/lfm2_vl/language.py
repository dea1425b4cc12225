"""The LFM2 language model over packed tokens: short convolutions and grouped-query attention, each with a gated FFN.

Source: `modeling_lfm2.py` in transformers. Nothing is padded: the new tokens of all sequences lie one after another,
so no padding can enter a convolution state, and a sequence's result does not depend on its company.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.kernels.cached_attention import cached_attention
from foveate.kernels.norm import rms_norm
from foveate.kernels.rotary import rotary_angles, rotate
from foveate.kernels.short_convolution import short_convolution
from foveate.models.caches import CacheTensors, SequenceBatch
from foveate.models.lfm2_vl.config import LanguageConfig


class RmsNorm(nn.Module):
    """Root-mean-square norm with a weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return rms_norm(hidden, self.weight, self.eps)


class Attention(nn.Module):
    """Causal grouped-query attention with a norm on each query and key head before the rotation."""

    def __init__(self, config: LanguageConfig, cache_layer: int) -> None:
        super().__init__()
        self.cache_layer = cache_layer
        self.head_size, self.theta = config.head_size, config.rope_theta
        self.split = (config.num_heads, config.num_key_value_heads, config.num_key_value_heads)
        self.qkv = nn.Linear(config.hidden_size, sum(self.split) * config.head_size, bias=False)
        self.out = nn.Linear(config.num_heads * config.head_size, config.hidden_size, bias=False)
        self.query_norm = RmsNorm(config.head_size, config.norm_eps)
        self.key_norm = RmsNorm(config.head_size, config.norm_eps)

    def forward(self, hidden: Tensor, batch: SequenceBatch, caches: CacheTensors) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`; writes the new keys and values into the caches."""
        query, key, value = self.qkv(hidden).unflatten(-1, (-1, self.head_size)).split(self.split, 1)
        angles = rotary_angles(batch.positions, self.head_size, self.theta, hidden.dtype)
        query, key = rotate(self.query_norm(query), *angles), rotate(self.key_norm(key), *angles)
        keys, values = (pages[self.cache_layer].flatten(0, 1) for pages in (caches.keys, caches.values))
        keys.index_copy_(0, batch.write_rows, key)
        values.index_copy_(0, batch.write_rows, value)
        return self.out(cached_attention(query, keys, values, batch))


class ShortConvolution(nn.Module):
    """Gate, short causal convolution, gate: `out(C * conv(B * x))`."""

    def __init__(self, config: LanguageConfig, cache_layer: int) -> None:
        super().__init__()
        self.cache_layer = cache_layer
        width = config.hidden_size
        self.gates = nn.Linear(width, 3 * width, bias=config.conv_bias)
        self.weight = nn.Parameter(torch.empty(width, config.conv_taps))
        self.bias = nn.Parameter(torch.empty(width)) if config.conv_bias else None
        self.out = nn.Linear(width, width, bias=config.conv_bias)

    def forward(self, hidden: Tensor, batch: SequenceBatch, caches: CacheTensors) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`; reads and replaces the states of the batch's sequences."""
        before, after, content = self.gates(hidden).chunk(3, -1)
        states = caches.states[self.cache_layer]
        old = states.index_select(0, batch.slots)
        mixed, new = short_convolution(before * content, old, self.weight, self.bias, batch.convolution)
        states.index_copy_(0, batch.slots, new)
        return self.out(after * mixed)


class FeedForward(nn.Module):
    """`down(silu(gate(x)) * up(x))`, gate and up in one product."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.feed_forward_size, bias=False)
        self.down = nn.Linear(config.feed_forward_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class LanguageLayer(nn.Module):
    """A mixer (attention or convolution) and a gated FFN, each behind a norm and beside a residual."""

    def __init__(self, config: LanguageConfig, mixer: Attention | ShortConvolution) -> None:
        super().__init__()
        self.mixer_norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.mixer = mixer
        self.feed_forward_norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, hidden: Tensor, batch: SequenceBatch, caches: CacheTensors) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`."""
        hidden = hidden + self.mixer(self.mixer_norm(hidden), batch, caches)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class LanguageModel(nn.Module):
    """Token embeddings → logits."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_layers(config))
        self.norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.head = None if config.tie_embeddings else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, embeddings: Tensor, batch: SequenceBatch, caches: CacheTensors) -> Tensor:
        """Run the new tokens of a batch; returns `[tokens, hidden_size]`, normalised, and fills the caches."""
        hidden = embeddings
        for layer in self.layers:
            hidden = layer(hidden, batch, caches)
        return self.norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return `[tokens, vocab_size]` in float32."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(hidden, weight).float()

    def new_caches(self, *, pages: int, page_tokens: int, slots: int) -> CacheTensors:
        """Allocate caches for this model, zeroed, in its type and on its device."""
        config, weight = self.config, self.embedding.weight
        attention = config.layer_kinds.count("full_attention")
        pool = (attention, pages, page_tokens, config.num_key_value_heads, config.head_size)
        states = (len(config.layer_kinds) - attention, slots, config.conv_taps - 1, config.hidden_size)
        return CacheTensors(weight.new_zeros(pool), weight.new_zeros(pool), weight.new_zeros(states))


def _layers(config: LanguageConfig) -> list[LanguageLayer]:
    counts = {"full_attention": 0, "conv": 0}
    layers = []
    for kind in config.layer_kinds:
        mixer = (Attention if kind == "full_attention" else ShortConvolution)(config, counts[kind])
        counts[kind] += 1
        layers.append(LanguageLayer(config, mixer))
    return layers

"""The LFM2 language model over packed tokens: short convolutions and grouped-query attention, each with a gated FFN.

Source: `modeling_lfm2.py` in transformers. Nothing is padded: the new tokens of all sequences lie one after another,
so no padding can enter a convolution state, and a sequence's result does not depend on its company.
"""

import torch
from torch import Tensor, nn

from foveate.kernels.decode_attention import decode_attention
from foveate.kernels.gated import gated_product, small_product
from foveate.kernels.norm import add_rms_norm, rms_norm
from foveate.kernels.packed_convolution import packed_convolution
from foveate.kernels.prefill_attention import prefill_attention
from foveate.kernels.rotary_cache import CacheRows, HeadNorms, rotate_and_cache
from foveate.kernels.short_convolution_step import short_convolution_step
from foveate.models.caches import AnyBatch, CacheTensors, DecodeBatch
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

    def after(self, hidden: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return `hidden + branch`, or `hidden` where there is none, and its norm; both are `[tokens, width]`."""
        return add_rms_norm(hidden, branch, self.weight, self.eps)


class Attention(nn.Module):
    """Causal grouped-query attention with a norm on each query and key head before the rotation."""

    def __init__(self, config: LanguageConfig, cache_layer: int) -> None:
        super().__init__()
        self.cache_layer = cache_layer
        self.head_size, self.theta = config.head_size, config.rope_theta
        self.most_positions = config.max_positions
        self.split = (config.num_heads, config.num_key_value_heads, config.num_key_value_heads)
        self.qkv = nn.Linear(config.hidden_size, sum(self.split) * config.head_size, bias=False)
        self.out = nn.Linear(config.num_heads * config.head_size, config.hidden_size, bias=False)
        self.query_norm = RmsNorm(config.head_size, config.norm_eps)
        self.key_norm = RmsNorm(config.head_size, config.norm_eps)

    def forward(self, hidden: Tensor, batch: AnyBatch, caches: CacheTensors) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`; writes the new keys and values into the caches."""
        key_pages, value_pages = caches.keys[self.cache_layer], caches.values[self.cache_layer]
        keys, values = key_pages.flatten(0, 1), value_pages.flatten(0, 1)
        norms = HeadNorms(
            self.query_norm.weight, self.key_norm.weight, self.query_norm.eps, self.theta, self.most_positions
        )
        cache = CacheRows(keys, values, batch.write_rows)
        query = rotate_and_cache(_product(self.qkv, hidden), batch.positions, norms, cache)
        if isinstance(batch, DecodeBatch):
            attended = decode_attention(query, key_pages, value_pages, batch.page_tables, batch.lengths)
            return _product(self.out, attended)
        tables, bounds, cached = batch.page_tables, batch.bounds, batch.cached
        return _product(self.out, prefill_attention(query, key_pages, value_pages, tables, bounds, cached))


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

    def forward(self, hidden: Tensor, batch: AnyBatch, caches: CacheTensors) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`; reads and replaces the states of the batch's sequences."""
        gates, states = _product(self.gates, hidden), caches.states[self.cache_layer]
        if isinstance(batch, DecodeBatch):
            mixed = short_convolution_step(gates, states, batch.slots, self.weight, self.bias)
        else:
            mixed = packed_convolution(gates, states, batch.slots, batch.bounds, self.weight, self.bias)
        return _product(self.out, mixed)


class FeedForward(nn.Module):
    """`down(silu(gate(x)) * up(x))`, gate and up in one product."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.feed_forward_size, bias=False)
        self.down = nn.Linear(config.feed_forward_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """`hidden` is `[tokens, hidden_size]`."""
        return _product(self.down, gated_product(hidden, self.gate_up.weight))


class LanguageLayer(nn.Module):
    """A mixer (attention or convolution) and a gated FFN, each behind a norm and beside a residual."""

    def __init__(self, config: LanguageConfig, mixer: Attention | ShortConvolution) -> None:
        super().__init__()
        self.mixer_norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.mixer = mixer
        self.feed_forward_norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, hidden: Tensor, branch: Tensor | None, batch: AnyBatch, caches: CacheTensors
    ) -> tuple[Tensor, Tensor]:
        """Take the hidden rows `[tokens, hidden_size]` and the last layer's branch, not added yet, if there was one.

        Returns the same for the next layer: a sum is taken together with the norm that reads it.
        """
        hidden, rows = self.mixer_norm.after(hidden, branch)
        hidden, rows = self.feed_forward_norm.after(hidden, self.mixer(rows, batch, caches))
        return hidden, self.feed_forward(rows)


class LanguageModel(nn.Module):
    """Token embeddings → logits."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_layers(config))
        self.norm = RmsNorm(config.hidden_size, config.norm_eps)
        self.head = None if config.tie_embeddings else nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, embeddings: Tensor, batch: AnyBatch, caches: CacheTensors) -> Tensor:
        """Run the new tokens of a batch; returns `[tokens, hidden_size]`, normalised, and fills the caches."""
        hidden, branch = embeddings, None
        for layer in self.layers:
            hidden, branch = layer(hidden, branch, batch, caches)
        return self.norm.after(hidden, branch)[1]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return `[tokens, vocab_size]` in float32."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return small_product(hidden, weight).float()

    def new_caches(self, *, pages: int, page_tokens: int, slots: int) -> CacheTensors:
        """Allocate caches for this model in its type and on its device.

        Pages hold whatever the memory held before: nothing reads beyond what a sequence wrote.
        """
        config, weight = self.config, self.embedding.weight
        attention = config.layer_kinds.count("full_attention")
        pool = (attention, pages, page_tokens, config.num_key_value_heads, config.head_size)
        states = (len(config.layer_kinds) - attention, slots, config.conv_taps - 1, config.hidden_size)
        return CacheTensors(weight.new_empty(pool), weight.new_empty(pool), weight.new_zeros(states))


def _product(linear: nn.Linear, rows: Tensor) -> Tensor:
    """The product of a single row has a kernel of its own."""
    return small_product(rows, linear.weight, linear.bias)


def _layers(config: LanguageConfig) -> list[LanguageLayer]:
    counts = {"full_attention": 0, "conv": 0}
    layers = []
    for kind in config.layer_kinds:
        mixer = (Attention if kind == "full_attention" else ShortConvolution)(config, counts[kind])
        counts[kind] += 1
        layers.append(LanguageLayer(config, mixer))
    return layers

"""The parts that the configuration files of all LFM2-VL checkpoints share."""

from collections.abc import Collection
from typing import Any

from foveate.checkpoints.layout import SpecialTokens

__all__ = ["PIXELS", "TILING", "generation", "in_order", "text", "vision"]

TILING: dict[str, Any] = {
    "do_image_splitting": True,
    "downsample_factor": 2,
    "encoder_patch_size": 16,
    "max_image_tokens": 256,
    "max_pixels_tolerance": 2.0,
    "max_tiles": 10,
    "min_image_tokens": 64,
    "min_tiles": 2,
    "tile_size": 512,
    "use_thumbnail": True,
}
PIXELS: dict[str, Any] = {
    "do_normalize": True,
    "do_rescale": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "max_num_patches": 1024,
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
}


def in_order(section: dict[str, Any]) -> dict[str, Any]:
    """The section with its keys in alphabetical order, the order in which the published files are written."""
    return dict(sorted(section.items()))


def vision(hidden: int, layers: int, heads: int, intermediate: int) -> dict[str, Any]:
    """The `vision_config` of a SigLIP2 NaFlex tower without its pooling head."""
    return {
        "attention_dropout": 0.0,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "layer_norm_eps": 1e-06,
        "model_type": "siglip2_vision_model",
        "num_attention_heads": heads,
        "num_channels": 3,
        "num_hidden_layers": layers,
        "num_patches": 256,
        "patch_size": 16,
        "vision_use_head": False,
    }


def text(hidden: int, layers: int, heads: int, raw_width: int, attention_at: Collection[int]) -> dict[str, Any]:
    """The `text_config` of an LFM2 model; `raw_width` is the feed-forward width before LFM2's adjustment."""
    return {
        "architectures": ["Lfm2ForCausalLM"],
        "block_auto_adjust_ff_dim": True,
        "block_dim": hidden,
        "block_ff_dim": raw_width,
        "block_ffn_dim_multiplier": 1.0,
        "block_mlp_init_scale": 1.0,
        "block_multiple_of": 256,
        "block_norm_eps": 1e-05,
        "block_out_init_scale": 1.0,
        "block_use_swiglu": True,
        "block_use_xavier_init": True,
        "conv_L_cache": 3,
        "conv_bias": False,
        "conv_dim": hidden,
        "conv_dim_out": hidden,
        "conv_use_xavier_init": True,
        "eos_token_id": 7,
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": raw_width,
        "layer_types": ["full_attention" if number in attention_at else "conv" for number in range(layers)],
        "max_position_embeddings": 128000,
        "model_type": "lfm2",
        "norm_eps": 1e-05,
        "num_attention_heads": heads,
        "num_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "use_cache": True,
        "use_pos_enc": True,
        "vocab_size": 65536,
    }


def generation(tokens: SpecialTokens, transformers_version: str) -> dict[str, Any]:
    """generation_config.json: the three ids, and therefore greedy decoding."""
    return {
        "_from_model_config": True,
        "bos_token_id": tokens.beginning_id,
        "eos_token_id": tokens.end_id,
        "pad_token_id": tokens.pad_id,
        "transformers_version": transformers_version,
    }

"""The least time an encoder can take: its arithmetic at the measured ceiling, or reading its weights once."""

from collections.abc import Sequence

from foveate.bench.ceilings import Ceilings
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.tiles import TileShape


def floor_ms(config: ModelConfig, tiles: Sequence[TileShape], ceilings: Ceilings, element_bytes: int) -> float:
    """Return the milliseconds below which no implementation in this type can encode these tiles."""
    arithmetic_ms = encoder_flops(config, tiles) / ceilings.teraflops_per_s / 1e9
    reading_ms = weight_elements(config) * element_bytes / ceilings.copy_terabytes_per_s / 1e9
    return max(arithmetic_ms, reading_ms)


def encoder_flops(config: ModelConfig, tiles: Sequence[TileShape]) -> int:
    """Return the floating-point operations of all matrix products, two for each multiplication and addition.

    Attention counts within each tile alone. What is not a matrix product of the model, norms, activations and the
    resizing of the position table, is left out: it is under one percent.
    """
    vision, factor = config.vision, config.projector.downsample_factor
    patches = sum(tile.num_patches for tile in tiles)
    tokens = sum(tile.num_tokens(factor) for tile in tiles)
    linear = patches * (vision.patch_width * vision.hidden_size + vision.num_layers * _layer_elements(config))
    attention = 2 * vision.num_layers * vision.hidden_size * sum(tile.num_patches**2 for tile in tiles)
    return 2 * (linear + attention + tokens * _projector_elements(config))


def weight_elements(config: ModelConfig) -> int:
    """Return the numbers in all matrices of the tower and the projector."""
    vision = config.vision
    embedding = vision.patch_width * vision.hidden_size
    return embedding + vision.num_layers * _layer_elements(config) + _projector_elements(config)


def _layer_elements(config: ModelConfig) -> int:
    width = config.vision.hidden_size
    return 4 * width * width + 2 * width * config.vision.intermediate_size


def _projector_elements(config: ModelConfig) -> int:
    inner = config.projector.hidden_size
    block_width = config.vision.hidden_size * config.projector.downsample_factor**2
    return inner * (block_width + config.language.hidden_size)

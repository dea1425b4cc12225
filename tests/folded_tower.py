"""The vision tower as it is written down: every bias where its product is, every sum by itself, in plain torch."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.kernels.attention import packed_attention_reference
from foveate.models.lfm2_vl.config import VisionConfig
from foveate.models.lfm2_vl.layout import packed_layout
from foveate.models.lfm2_vl.vision import VisionTower


def tower_config(*, hidden_size: int, intermediate_size: int, num_layers: int, num_heads: int) -> VisionConfig:
    """A tower of patches of 4x4 pixels."""
    return VisionConfig(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        patch_size=4,
        num_channels=3,
        position_grid=4,
        norm_eps=1e-6,
        activation="gelu_pytorch_tanh",
    )


def random_tower(config: VisionConfig, *, bias_scale: float, device: str = "cpu", seed: int = 0) -> VisionTower:
    """A float32 tower whose branches are about as large as what they are added to, rounded to bfloat16 numbers."""
    generator = torch.Generator().manual_seed(seed)
    tower = VisionTower(config).requires_grad_(False)
    for name, parameter in tower.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            values = 1 + 0.1 * values
        elif name.endswith("bias"):
            values = bias_scale * values
        elif name != "position.weight":
            values = values / parameter.shape[-1] ** 0.5
        parameter.copy_(values.bfloat16().float())
    return tower.to(device)


def plain_tower(tower: VisionTower, patches: Tensor, tile_shapes: Tensor) -> Tensor:
    """`tower(patches, ...)` without a kernel of ours, in the type of its weights."""
    layout = packed_layout(tile_shapes, patches.shape[0], 2)
    hidden = tower.patch_embedding(patches.to(tower.patch_embedding.weight.dtype)) + tower.position(layout.patch_grid)
    for layer in tower.layers:
        qkv = layer.qkv(layer.attention_norm(hidden)).unflatten(-1, (3, layer.num_heads, layer.head_size))
        hidden = hidden + layer.out(packed_attention_reference(*qkv.unbind(1), layout.bounds))
        hidden = hidden + layer.fc2(F.gelu(layer.fc1(layer.mlp_norm(hidden)), approximate="tanh"))
    return tower.norm(hidden)


def run_tower(tower: VisionTower, patches: Tensor, tile_shapes: Tensor) -> Tensor:
    """The tower as it is served; `[rows, width]`."""
    layout = packed_layout(tile_shapes, patches.shape[0], 2)
    return tower(patches, layout, int(tile_shapes.prod(-1).max()))


def in_bfloat16(module: nn.Module) -> nn.Module:
    """A copy in bfloat16."""
    return copy.deepcopy(module).bfloat16()

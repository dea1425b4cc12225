"""The SigLIP2 NaFlex vision tower over packed patches, and its projector.

Source: `modeling_siglip2.py` and `modeling_lfm2_vl.py` in transformers. Rows are packed without a batch dimension:
tiles attend to themselves alone through sequence bounds, so any number of tiles of any shapes is one call.

The products that add into the hidden rows leave their biases out: so a product and its sum are one launch, in place.
What the rows lack is the same for all of them, the sum of the biases so far, and each norm adds it as it reads.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from foveate.kernels.attention import attention
from foveate.kernels.layer_norm import layer_norm
from foveate.kernels.linear import add_product_, linear_gelu_tanh
from foveate.kernels.position_rows import position_rows, resized_rows
from foveate.models.lfm2_vl.activations import activation
from foveate.models.lfm2_vl.config import ModelConfig, ProjectorConfig, VisionConfig
from foveate.models.lfm2_vl.fp8_layers import Fp8Layer, fp8_layers, run_fp8_layers
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.layout import PackedLayout, packed_layout
from foveate.models.transfer import to_device


class PositionTable(nn.Module):
    """A square table of position vectors, resized to each tile's grid by antialiased bilinear interpolation."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.position_grid**2, config.hidden_size))

    def forward(self, patch_grid: Tensor) -> Tensor:
        """Return the position rows `[rows, hidden_size]` of `patch_grid` (see `PackedLayout`), in the table's type.

        For training, with gradients; `of_layout` gives the same without making the grid.
        """
        return resized_rows(self.weight, patch_grid)

    def of_layout(self, layout: PackedLayout) -> Tensor:
        """Return the position rows `[rows, hidden_size]` of a batch, in the table's type; zeros in the padding."""
        return position_rows(self.weight, layout.tile_shapes, layout.bounds, layout.num_rows)


class VisionLayer(nn.Module):
    """One pre-norm encoder layer: attention within each tile, then an MLP."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.num_heads, self.head_size = config.num_heads, config.head_size
        self.attention_norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.fc1 = nn.Linear(width, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, width)
        self.activation = None if config.activation == "gelu_pytorch_tanh" else activation(config.activation)

    def forward(self, hidden: Tensor, offsets: Tensor, bounds: Tensor, longest: int) -> Tensor:
        """Run the layer in place on `hidden` `[rows, width]`, and return it.

        `offsets` is float32 `[2, width]`: what the rows lack before each of the two norms. `bounds` is `[slots + 1]`
        int32, `longest` the most patches a tile can have.
        """
        qkv = self.qkv(_norm(self.attention_norm, hidden, offsets[0]))
        query, key, value = qkv.unflatten(-1, (3, self.num_heads, self.head_size)).unbind(1)
        add_product_(hidden, attention(query, key, value, bounds, longest), self.out.weight)
        inner = self._inner(_norm(self.mlp_norm, hidden, offsets[1]))
        return add_product_(hidden, inner, self.fc2.weight)

    def _inner(self, rows: Tensor) -> Tensor:
        if self.activation is None:
            return linear_gelu_tanh(rows, self.fc1.weight, self.fc1.bias)
        return self.activation(self.fc1(rows))


class VisionTower(nn.Module):
    """Patches → one hidden row per patch."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.patch_embedding = nn.Linear(config.patch_width, config.hidden_size)
        self.position = PositionTable(config)
        self.layers = nn.ModuleList(VisionLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.fp8_layers: list[Fp8Layer] = []
        self.kept_offsets: Tensor | None = None

    def forward(self, patches: Tensor, layout: PackedLayout, longest: int) -> Tensor:
        """`patches` is `[rows, patch_width]` of any float type; the result `[rows, hidden_size]`, unspecified in the
        padding."""
        weight, offsets = self.patch_embedding.weight, self._offsets_to_use()
        hidden = add_product_(self.position.of_layout(layout), patches.to(weight.dtype), weight)
        lacking = offsets[:-1].unflatten(0, (-1, 2)).unbind()
        if self.fp8_layers:
            run_fp8_layers(self.fp8_layers, hidden, lacking, layout.bounds, longest)
        else:
            for layer, own in zip(self.layers, lacking, strict=True):
                layer(hidden, own, layout.bounds, longest)
        return _norm(self.norm, hidden, offsets[-1])

    def offsets(self) -> Tensor:
        """Sum up float32 `[norms, width]`: what the hidden rows lack before each norm, the biases up to there."""
        return torch.stack(list(self._biases())).cumsum(0, dtype=torch.float32)

    def keep_offsets(self) -> None:
        """Have every run from now on read what `offsets` gives now, from memory that stays the same.

        Called again, it brings that memory up to date where it lies; on another device there is new memory. It knows
        nothing of a bias that is changed afterwards. A tower of which this was never asked sums up in every run, and so
        does one whose biases require gradients: it is in training.
        """
        # Not in inference mode, whose tensors nothing else may write to later.
        with torch.inference_mode(mode=False), torch.no_grad():
            made = self.offsets()
            if self.kept_offsets is not None and self.kept_offsets.device == made.device:
                self.kept_offsets.copy_(made)
            else:
                self.kept_offsets = made

    def _biases(self) -> Iterator[Tensor]:
        yield self.patch_embedding.bias
        for layer in self.layers:
            if isinstance(layer, VisionLayer):
                yield layer.out.bias
                yield layer.fc2.bias

    def _offsets_to_use(self) -> Tensor:
        if self.kept_offsets is None or any(bias.requires_grad for bias in self._biases()):
            return self.offsets()
        return self.kept_offsets


def _norm(norm: nn.LayerNorm, hidden: Tensor, offset: Tensor) -> Tensor:
    return layer_norm(hidden, offset, norm.weight, norm.bias, norm.eps)


class Projector(nn.Module):
    """Blocks of patches → image tokens of the language model's width."""

    def __init__(self, config: ProjectorConfig, vision_width: int, language_width: int) -> None:
        super().__init__()
        block_width = vision_width * config.downsample_factor**2
        self.norm = nn.LayerNorm(block_width) if config.use_layernorm else None
        self.linear_1 = nn.Linear(block_width, config.hidden_size, bias=config.bias)
        self.linear_2 = nn.Linear(config.hidden_size, language_width, bias=config.bias)
        self.activation = activation(config.activation)

    def forward_with_gather_idx(self, hidden: Tensor, gather_index: Tensor) -> Tensor:
        """Gather the patch rows of each block from `hidden` `[rows, width]`, side by side, and project them.

        `gather_index` is `[tokens * factor**2]`; the order inside a block is (0,0), (0,1), (1,0), (1,1).
        """
        blocks = hidden.index_select(0, gather_index).view(-1, self.linear_1.in_features)
        return self.forward_from_unshuffled(blocks)

    def forward_from_unshuffled(self, blocks: Tensor) -> Tensor:
        """Project `[tokens, factor**2 * width]` to `[tokens, language_width]`."""
        if self.norm is not None:
            blocks = self.norm(blocks)
        return self.linear_2(self.activation(self.linear_1(blocks)))


class ImageEncoder(nn.Module):
    """Tower and projector: packed patches and tile shapes → image features."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tower = VisionTower(config.vision)
        self.projector = Projector(config.projector, config.vision.hidden_size, config.language.hidden_size)
        self.downsample_factor = config.projector.downsample_factor
        self.longest_tile_patches = config.images.longest_tile_patches
        self.num_changes = 0
        self._made_at: int | None = None
        self.register_load_state_dict_post_hook(_count_change)  # type: ignore[no-untyped-call]

    @property
    def dtype_name(self) -> str:
        """`fp8` where the tower multiplies in float8, otherwise the type of the weights."""
        weight = self.tower.patch_embedding.weight
        return "fp8" if self.tower.fp8_layers else str(weight.dtype).removeprefix("torch.")

    def use_fp8(self) -> None:
        """Run the tower's matrix products in float8 from now on; graphs are captured afterwards.

        Not verified on released checkpoints. Raises DeviceError or ConfigurationError where that does not go.
        """
        self.tower.fp8_layers = fp8_layers([layer for layer in self.tower.layers if isinstance(layer, VisionLayer)])

    def refresh(self) -> None:
        """Bring what was made of the weights up to date, where it lies; one comparison as long as nothing changed.

        That is the tower's offsets, the sums of its biases, and its float8 weights. `load_state_dict` and whatever
        moves or casts the weights is noticed, here and in replays. A bias or a float8 weight's source that is changed
        in place by hand after the first run is not: call `load_state_dict(state_dict())`. Biases that require gradients
        are in training, and are summed anew in every run.
        """
        if self._made_at == self.num_changes:
            return
        self.tower.keep_offsets()
        if self.tower.fp8_layers and self.tower.fp8_layers[0].device != self.tower.patch_embedding.weight.device:
            self.use_fp8()
        for layer in self.tower.fp8_layers:
            layer.refresh()
        self._made_at = self.num_changes

    def weight_addresses(self) -> tuple[int, ...]:
        """Where every weight and the tower's offsets lie: what a captured graph has frozen. Ask after `refresh`."""
        offsets = self.tower.kept_offsets
        return (*(weight.data_ptr() for weight in self.parameters()), 0 if offsets is None else offsets.data_ptr())

    def _apply(self, *arguments: Any, **settings: Any) -> "ImageEncoder":
        # All of `to`, `float`, `cuda` and their like come through here.
        super()._apply(*arguments, **settings)  # type: ignore[no-untyped-call]
        self.num_changes += 1
        return self

    def forward(self, patches: Tensor, tile_shapes: Tensor) -> Tensor:
        """Return the features `[rows / factor**2, language_width]`; rows of no tile are zeros.

        `patches` is `[rows, patch_width]`, tiles packed in order; `tile_shapes` is `[slots, 2]` integers on the same
        device. All that depends on the shapes is computed on the device, so a graph captured here replays with other
        shapes.
        """
        self.refresh()
        layout = packed_layout(tile_shapes, patches.shape[0], self.downsample_factor)
        hidden = self.tower(patches, layout, self.longest_tile_patches)
        features = self.projector.forward_with_gather_idx(hidden, layout.gather_index)
        return features.masked_fill_(layout.is_padding, 0)

    def encode(self, batch: ImageBatch) -> Tensor:
        """Return the features `[image tokens, language_width]` of a batch, tiles in order, without padding."""
        device = self.tower.patch_embedding.weight.device
        return self(batch.patches.to(device), to_device(batch.tile_shapes(), device))


def _count_change(encoder: ImageEncoder, _: Any) -> None:
    encoder.num_changes += 1

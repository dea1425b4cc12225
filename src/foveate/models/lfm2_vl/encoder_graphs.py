"""LFM2-VL's side of the encoder graph runtime.

Inside the graph: sequence bounds, position rows, the gather index of the pixel-unshuffle and the mask of real rows,
all computed from the tiles' (rows, columns); the tower; the projector. Copied in: patches and tile shapes. Padding
slots have the shape (0, 0): they are sequences without rows, and the attention kernel reads the number of real rows
from the bounds, so nothing attends to padding and NaN there stays there.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor

from foveate.errors import ConfigurationError
from foveate.graphs.protocol import (
    BudgetRange,
    BufferSpec,
    EncoderCudaGraphConfig,
    EncoderItemSpec,
    GraphCapacity,
    TileSpec,
)
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.tiles import TileShape
from foveate.models.lfm2_vl.vision import ImageEncoder


class Lfm2VlEncoderGraphs:
    """Implements `SupportsEncoderCudaGraph[ImageBatch]`; the token budget counts image tokens."""

    def __init__(self, encoder: ImageEncoder, config: ModelConfig) -> None:
        encoder.refresh()  # what is made of the weights lies where graphs will read it from now on
        self._encoder = encoder
        self._addresses, self._seen_changes = encoder.weight_addresses(), encoder.num_changes
        self._config = config
        self._factor = config.projector.downsample_factor

    @property
    def _weight(self) -> Tensor:
        return self._encoder.tower.patch_embedding.weight

    def get_encoder_cudagraph_config(self) -> EncoderCudaGraphConfig:
        """Patches, which the padding never lets into a result, and tile shapes, which say (0, 0) in unused slots."""
        patches = BufferSpec("patches", "input", (self._config.vision.patch_width,), self._weight.dtype, "keep")
        shapes = BufferSpec("tile_shapes", "tile", (2,), torch.int32, "zero")
        return EncoderCudaGraphConfig(
            modalities=("image",),
            buffers=(patches, shapes),
            inputs_per_token=self._factor**2,
            output_width=self._config.language.hidden_size,
            output_dtype=self._weight.dtype,
        )

    def get_encoder_cudagraph_budget_range(self) -> BudgetRange:
        """See `budget_range`."""
        return budget_range(self._config)

    def get_input_modality(self, batch: ImageBatch) -> str:  # noqa: ARG002 - the protocol's signature
        """Everything is an image."""
        return "image"

    def get_max_frames_per_video(self) -> int:
        """LFM2-VL takes no video."""
        return 0

    def get_encoder_cudagraph_item_specs(self, batch: ImageBatch) -> list[EncoderItemSpec]:
        """Patches and image tokens of every tile of every picture."""
        return list(_picture_specs(batch.tiles, batch.tiles_per_image, self._factor))

    def select_encoder_cudagraph_items(self, batch: ImageBatch, tiles: Sequence[int]) -> ImageBatch:
        """Return the part of a batch that holds these tiles."""
        return batch if len(tiles) == len(batch.tiles) else batch.select(tiles)

    def prepare_encoder_cudagraph_capture_inputs(
        self, capacity: GraphCapacity, *, seed: int = 0, short_tiles: bool = False
    ) -> ImageBatch:
        """One picture of random pixels, of full or of the smallest tiles as far as they fit, near square each."""
        images = self._config.images
        full = images.longest_tile_patches // self._factor**2
        sizes = _tile_sizes(capacity, images.min_image_tokens if short_tiles else full, full)
        tiles = tuple(_near_square(size, self._factor) for size in sizes)
        rows = sum(tile.num_patches for tile in tiles)
        weight = self._weight
        generator = torch.Generator(weight.device).manual_seed(seed)
        shape = (rows, self._config.vision.patch_width)
        patches = torch.rand(shape, generator=generator, device=weight.device, dtype=torch.float32) * 2 - 1
        return ImageBatch(patches.to(weight.dtype), tiles, (len(tiles),))

    def prepare_encoder_cudagraph_replay_buffers(self, batch: ImageBatch) -> Mapping[str, Tensor]:
        """Patches and tile shapes, wherever they are.

        Weights that were loaded anew where they lie are followed. Raises ConfigurationError if they lie elsewhere now.
        """
        self._check_weights()
        return {"patches": batch.patches, "tile_shapes": batch.tile_shapes()}

    def _check_weights(self) -> None:
        """One comparison as long as nobody moved or loaded weights: graphs read them where they were at the capture."""
        if self._encoder.num_changes == self._seen_changes:
            return
        self._check_addresses()
        self._encoder.refresh()
        self._check_addresses()  # what is made of the weights may lie elsewhere now even so
        self._seen_changes = self._encoder.num_changes

    def _check_addresses(self) -> None:
        if self._encoder.weight_addresses() != self._addresses:
            raise ConfigurationError(
                "the encoder's weights were moved, cast or replaced after its graphs were captured, which read them"
                " where they were: load the model anew, or put the weights in place with load_state_dict"
            )

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        """Encode padded buffers; see `ImageEncoder.forward`."""
        return self._encoder(buffers["patches"], buffers["tile_shapes"])

    def encoder_eager_forward(self, batch: ImageBatch) -> Tensor:
        """Encode exact rows; see `ImageEncoder.encode`."""
        return self._encoder.encode(batch)

    def postprocess_encoder_output(self, output: Tensor, specs: Sequence[EncoderItemSpec]) -> list[Tensor]:
        """Cut the rows by picture."""
        if len(specs) == 1:
            return [output]
        return list(output.split([spec.output_tokens for spec in specs]))


def budget_range(config: ModelConfig) -> BudgetRange:
    """Return the budgets that make sense: from the smallest tile to a picture of the most tiles and a thumbnail."""
    images = config.images
    full = images.longest_tile_patches // config.projector.downsample_factor**2
    tiles = images.tile_bounds[1] + (1 if images.use_thumbnail and images.tile_bounds[1] > 1 else 0)
    return BudgetRange(smallest=images.min_image_tokens, largest=tiles * full, step=full)


def picture_spec(tiles: Sequence[TileShape], downsample_factor: int) -> EncoderItemSpec:
    """Return the size of a picture that is cut into these tiles."""
    return EncoderItemSpec.of([_tile_spec(tile, downsample_factor) for tile in tiles])


def estimated_bytes_per_token(config: ModelConfig, element_size: int) -> int:
    """Return about what each token of the largest budget takes up of buffers and pool, in bytes.

    The buffers' part is exact. The pool's is what the encoder of LFM2.5-VL-3B took on an H200: 17 rows of the hidden
    size a patch; that of 450M took 15.
    """
    vision, patches = config.vision, config.projector.downsample_factor**2
    return element_size * (patches * (vision.patch_width + 17 * vision.hidden_size) + config.language.hidden_size)


@lru_cache(maxsize=1024)
def _picture_specs(
    tiles: tuple[TileShape, ...], tiles_per_image: tuple[int, ...], downsample_factor: int
) -> tuple[EncoderItemSpec, ...]:
    rest = iter(tiles)
    return tuple(picture_spec(tuple(islice(rest, count)), downsample_factor) for count in tiles_per_image)


@lru_cache(maxsize=4096)
def _tile_spec(tile: TileShape, downsample_factor: int) -> TileSpec:
    return TileSpec(tile.num_patches, tile.num_tokens(downsample_factor))


def _tile_sizes(capacity: GraphCapacity, size: int, longest: int) -> list[int]:
    """Return the tokens of each tile of a full batch: tiles of `size`, and one of what is left or, if there is no slot
    for that, a longer last one."""
    whole, rest = divmod(capacity.tokens, size)
    sizes = [size] * min(whole, capacity.tiles)
    if rest and len(sizes) < capacity.tiles:
        sizes.append(rest)
    elif rest:
        sizes[-1] = min(sizes[-1] + rest, longest)
    return sizes


def _near_square(tokens: int, factor: int) -> TileShape:
    """Return the tile of so many tokens whose sides are closest."""
    side = next(side for side in range(int(tokens**0.5), 0, -1) if tokens % side == 0)
    return TileShape(side * factor, tokens // side * factor)

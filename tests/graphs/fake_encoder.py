"""A small encoder that implements the graph runtime's protocol and has nothing to do with LFM2-VL.

An input row has 3 numbers. Two input rows become one token of 4 numbers, which depends on every row of its tile and on
nothing else. The eager forward goes through the tiles one by one; the padded forward is other code, without a loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice

import torch
from torch import Tensor

from foveate.graphs import (
    BudgetRange,
    BufferSpec,
    EncoderCudaGraphConfig,
    EncoderGraphSettings,
    EncoderItemSpec,
    GraphCapacity,
    TileSpec,
)
from foveate.graphs.settings import EncoderPlan

ROW_WIDTH, OUTPUT_WIDTH, INPUTS_PER_TOKEN = 3, 4, 2
SMALLEST, STEP, LARGEST = 4, 16, 48
"""Tokens of the smallest tile, of a full tile and of the largest item."""
BUDGETS = (4, 12, 32)


def settings(
    *budgets: int, items: int | None = None, frames: int | None = None, plan: EncoderPlan = "auto"
) -> EncoderGraphSettings:
    return EncoderGraphSettings(True, budgets or BUDGETS, items, frames, plan)


@dataclass(frozen=True)
class RowBatch:
    """Items made of tiles made of rows."""

    rows: Tensor
    """`[input rows, 3]`, tiles one after another."""
    tiles: tuple[int, ...]
    """Tokens of each tile."""
    tiles_per_item: tuple[int, ...]
    """How many of the tiles, in order, belong to each item."""
    modality: str = "image"

    @classmethod
    def of(cls, *items: Sequence[int], seed: int = 0, modality: str = "image") -> "RowBatch":
        """Return items with these tokens in each of their tiles and random rows."""
        tiles = tuple(tokens for item in items for tokens in item)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(INPUTS_PER_TOKEN * sum(tiles), ROW_WIDTH, generator=generator)
        return cls(rows, tiles, tuple(len(item) for item in items), modality)

    @property
    def bounds(self) -> list[int]:
        """The first input row of each tile, and the number of rows."""
        return list(accumulate((INPUTS_PER_TOKEN * tokens for tokens in self.tiles), initial=0))

    @property
    def tokens(self) -> int:
        return sum(self.tiles)


@dataclass(frozen=True)
class FakeEncoder:
    """Implements `SupportsEncoderCudaGraph[RowBatch]` for images."""

    weight: Tensor = field(
        default_factory=lambda: torch.randn(3 * ROW_WIDTH, OUTPUT_WIDTH, generator=torch.Generator().manual_seed(7))
    )

    def get_encoder_cudagraph_config(self) -> EncoderCudaGraphConfig:
        return EncoderCudaGraphConfig(
            modalities=("image",),
            buffers=(
                BufferSpec("rows", "input", (ROW_WIDTH,), self.weight.dtype, "keep"),
                BufferSpec("lengths", "tile", (), torch.int64, "zero"),
            ),
            inputs_per_token=INPUTS_PER_TOKEN,
            output_width=OUTPUT_WIDTH,
            output_dtype=self.weight.dtype,
        )

    def get_encoder_cudagraph_budget_range(self) -> BudgetRange:
        return BudgetRange(SMALLEST, LARGEST, STEP)

    def get_input_modality(self, batch: RowBatch) -> str:
        return batch.modality

    def get_max_frames_per_video(self) -> int:
        return 0

    def get_encoder_cudagraph_item_specs(self, batch: RowBatch) -> list[EncoderItemSpec]:
        frames = int(batch.modality == "video")
        tiles = (replace(self.tile_spec(tokens), frames=frames) for tokens in batch.tiles)
        return [EncoderItemSpec.of(list(islice(tiles, count))) for count in batch.tiles_per_item]

    def tile_spec(self, tokens: int) -> TileSpec:
        return TileSpec(INPUTS_PER_TOKEN * tokens, tokens)

    def select_encoder_cudagraph_items(self, batch: RowBatch, tiles: Sequence[int]) -> RowBatch:
        bounds = batch.bounds
        rows = torch.cat([batch.rows[bounds[tile] : bounds[tile + 1]] for tile in tiles])
        return RowBatch(rows, tuple(batch.tiles[tile] for tile in tiles), (len(tiles),), batch.modality)

    def prepare_encoder_cudagraph_capture_inputs(
        self, capacity: GraphCapacity, *, seed: int = 0, short_tiles: bool = False
    ) -> RowBatch:
        size = SMALLEST if short_tiles else STEP
        whole, rest = divmod(capacity.tokens, size)
        tiles = [size] * whole
        if rest and whole < capacity.tiles:
            tiles.append(rest)
        elif rest:
            tiles[-1] += rest
        return RowBatch.of(tiles, seed=seed)

    def prepare_encoder_cudagraph_replay_buffers(self, batch: RowBatch) -> Mapping[str, Tensor]:
        return {"rows": batch.rows, "lengths": INPUTS_PER_TOKEN * torch.tensor(batch.tiles)}

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        slot, is_real = self.slots(buffers)
        lengths = buffers["lengths"]
        rows = torch.where(is_real[:, None], buffers["rows"], 0)
        sums = rows.new_zeros(lengths.shape[0], ROW_WIDTH).index_add(0, slot, rows)
        means = sums / lengths.clamp(min=1)[:, None]
        output = self.mix(rows, means[slot[::INPUTS_PER_TOKEN]])
        return torch.where(is_real[::INPUTS_PER_TOKEN, None], output, 0)

    def slots(self, buffers: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tile slot of each input row, and whether it belongs to any."""
        ends = buffers["lengths"].cumsum(0)
        row = torch.arange(buffers["rows"].shape[0], device=ends.device)
        return torch.searchsorted(ends, row, right=True).clamp(max=ends.shape[0] - 1), row < ends[-1]

    def mix(self, rows: Tensor, means: Tensor) -> Tensor:
        return torch.tanh(torch.cat([rows.view(-1, INPUTS_PER_TOKEN * ROW_WIDTH), means], -1) @ self.weight)

    def encoder_eager_forward(self, batch: RowBatch) -> Tensor:
        outputs = [self.weight.new_empty(0, OUTPUT_WIDTH)]
        for first, tokens in zip(batch.bounds, batch.tiles, strict=False):
            rows = batch.rows[first : first + INPUTS_PER_TOKEN * tokens].to(self.weight.dtype)
            outputs.append(self.mix(rows, rows.mean(0).expand(tokens, -1)))
        return torch.cat(outputs)

    def postprocess_encoder_output(self, output: Tensor, specs: Sequence[EncoderItemSpec]) -> list[Tensor]:
        return list(output.split([spec.output_tokens for spec in specs]))


class FakeVideoEncoder(FakeEncoder):
    """Takes videos too, of up to 4 frames; every tile of a video is a frame."""

    def get_encoder_cudagraph_config(self) -> EncoderCudaGraphConfig:
        image = super().get_encoder_cudagraph_config()
        return EncoderCudaGraphConfig(
            ("image", "video"), image.buffers, INPUTS_PER_TOKEN, OUTPUT_WIDTH, image.output_dtype
        )

    def get_max_frames_per_video(self) -> int:
        return 4


class OneBadGraph(FakeEncoder):
    """At fault in the graph of 12 tokens alone."""

    def encoder_cudagraph_forward(self, buffers: Mapping[str, Tensor]) -> Tensor:
        output = super().encoder_cudagraph_forward(buffers)
        return output + 1 if output.shape[0] == 12 else output

"""What a model tells the encoder graph runtime, and what the runtime hands back to it.

The names follow vLLM's encoder CUDA graphs, whose design this grew from; `docs/encoder-graphs.md` maps one to the
other. The manager knows nothing of a model but this protocol, and the model nothing of the manager.

Words: an *item* is what the user sent (an image). It has *tiles*, independent sequences of input rows (patches). A
tile gives a fixed number of output rows (image tokens). The tile is the unit of packing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")

Buffers = Mapping[str, Tensor]
"""Tensors by buffer key."""


@dataclass(frozen=True)
class TileSpec:
    """The size of one tile."""

    input_size: int
    """Input rows, such as patches; at least 1."""
    output_tokens: int
    """Output rows, such as image tokens; at least 1."""
    frames: int = 0
    """Video frames; 0 for a tile of an image."""


@dataclass(frozen=True)
class EncoderItemSpec:
    """The size of one item. Invariant: both totals are the sums over its tiles; ValueError otherwise."""

    input_size: int
    """Input rows of all its tiles."""
    output_tokens: int
    """Output rows of all its tiles."""
    tiles: tuple[TileSpec, ...]
    """Its tiles, in the order in which their rows lie in the batch."""

    def __post_init__(self) -> None:
        sums = sum(tile.input_size for tile in self.tiles), sum(tile.output_tokens for tile in self.tiles)
        if sums != (self.input_size, self.output_tokens):
            raise ValueError(
                f"an item has {self.input_size} input rows and {self.output_tokens} output tokens, but its tiles sum to"
                f" {sums[0]} and {sums[1]}; use EncoderItemSpec.of(tiles)"
            )

    @classmethod
    def of(cls, tiles: Sequence[TileSpec]) -> "EncoderItemSpec":
        """Return the item that has these tiles."""
        inputs, outputs = sum(tile.input_size for tile in tiles), sum(tile.output_tokens for tile in tiles)
        return cls(inputs, outputs, tuple(tiles))


@dataclass(frozen=True)
class GraphCapacity:
    """What fits into one replay of one graph. What exceeds any of these is split or runs eagerly."""

    tokens: int
    """Output rows: the token budget."""
    input_rows: int
    """Input rows."""
    tiles: int
    """Tile slots."""
    items: int
    """Items with tiles in the replay."""
    frames: int = 0
    """Video frames; 0 for models without video."""


@dataclass(frozen=True)
class BufferSpec:
    """One input buffer that a captured graph reads at a fixed address."""

    key: str
    """Its name in `Buffers`."""
    rows: Literal["input", "tile"]
    """What one row stands for: an input row (the buffer has as many as the graph's `input_rows`) or a tile slot."""
    row_shape: tuple[int, ...]
    """The shape of one row."""
    dtype: torch.dtype
    """The type of the buffer."""
    padding: Literal["keep", "zero"]
    """What lies behind the rows of a batch: `zero` has zeros written there at every replay (slots that say "no
    tile"); `keep` leaves whatever was there, which the model must never let into a result."""


@dataclass(frozen=True)
class EncoderCudaGraphConfig:
    """What is fixed about a model's encoder."""

    modalities: tuple[str, ...]
    """What it can encode, such as `("image",)`."""
    buffers: tuple[BufferSpec, ...]
    """Its input buffers."""
    inputs_per_token: int
    """Input rows that become one output row: a graph holds so many for each token of its budget."""
    output_width: int
    """Width of an output row."""
    output_dtype: torch.dtype
    """Type of an output row."""
    capture_axes: tuple[str, ...] = ()
    """Names of whatever else than the token budget is frozen in a graph."""

    @property
    def buffer_keys(self) -> tuple[str, ...]:
        """The keys of the input buffers."""
        return tuple(buffer.key for buffer in self.buffers)


@dataclass(frozen=True)
class BudgetRange:
    """The token budgets that make sense for a model."""

    smallest: int
    """Tokens of the smallest tile; smaller budgets would hold nothing."""
    largest: int
    """Tokens of the largest item; a batch beyond it takes several replays."""
    step: int
    """Tokens of a full tile: budgets above it are multiples of it."""

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest or self.step < 1:
            raise ValueError(
                f"budgets from {self.smallest} to {self.largest} in steps of {self.step} are no range;"
                " 1 <= smallest <= largest and 1 <= step must hold"
            )


class SupportsEncoderCudaGraph(Protocol[Batch]):
    """A model whose encoder can run as captured graphs.

    Everything but the two forwards runs on the host and reads host data only: no device-to-host copy.
    """

    def get_encoder_cudagraph_config(self) -> EncoderCudaGraphConfig:
        """Return what is fixed about the encoder."""

    def get_encoder_cudagraph_budget_range(self) -> BudgetRange:
        """Return the range from which automatic budgets are chosen."""

    def get_input_modality(self, batch: Batch) -> str:
        """Return the modality of a batch, one of the configuration's."""

    def get_max_frames_per_video(self) -> int:
        """Return the most frames of one video; 0 for a model that takes images alone."""

    def get_encoder_cudagraph_item_specs(self, batch: Batch) -> list[EncoderItemSpec]:
        """Return the size of every item, in order."""

    def select_encoder_cudagraph_items(self, batch: Batch, tiles: Sequence[int]) -> Batch:
        """Return the part of a batch that holds these tiles, by ascending index over the whole batch.

        A run of neighbours is returned as views, without a copy.
        """

    def prepare_encoder_cudagraph_capture_inputs(
        self, capacity: GraphCapacity, *, seed: int = 0, short_tiles: bool = False
    ) -> Batch:
        """Return a batch of valid contents that fills `capacity` as far as the model's tiles allow.

        It is what graphs are captured and checked with; its tensors are on the model's device. `seed` chooses the
        random contents: the same gives the same, another gives others. Tiles are as long as they can be, or, with
        `short_tiles`, as short as they can be and as many as fit.
        """

    def prepare_encoder_cudagraph_replay_buffers(self, batch: Batch) -> Buffers:
        """Return the rows to copy into the input buffers, one tensor for each key, `[rows, *row_shape]`, real rows
        only.

        They may be on the host or on the device, and of another type than the buffer.
        """

    def encoder_cudagraph_forward(self, buffers: Buffers) -> Tensor:
        """Encode padded buffers: what is captured. Returns `[tokens, output_width]`, zeros in rows of no tile.

        Uses only the buffers, launches on the current stream, reads nothing back, and lets nothing that lies in the
        padding into a result.
        """

    def encoder_eager_forward(self, batch: Batch) -> Tensor:
        """Encode a batch without padding. Returns `[tokens, output_width]`, tiles in order."""

    def postprocess_encoder_output(self, output: Tensor, specs: Sequence[EncoderItemSpec]) -> list[Tensor]:
        """Put tiles back together: the output rows of a whole batch, tiles in order, as one tensor an item."""

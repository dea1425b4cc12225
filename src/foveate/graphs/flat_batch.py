"""The tiles of a batch one after another, with sums that tell at once what any neighbours take up of a graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from foveate.graphs.plan import EagerReason, PlannedRun
from foveate.graphs.protocol import EncoderItemSpec, GraphCapacity


@dataclass(frozen=True)
class FlatBatch:
    """Invariant: each of the sums has one entry more than there are tiles; entry i is over the first i tiles."""

    tokens: tuple[int, ...]
    """Sums of output rows."""
    input_rows: tuple[int, ...]
    """Sums of input rows."""
    frames: tuple[int, ...]
    """Sums of video frames."""
    item_of_tile: tuple[int, ...]
    """For each tile, which of the items that have tiles it belongs to, counted from 0."""

    @classmethod
    def of(cls, specs: Sequence[EncoderItemSpec]) -> "FlatBatch":
        """Flatten a batch."""
        tiles = [tile for spec in specs for tile in spec.tiles]
        with_tiles = [spec for spec in specs if spec.tiles]
        return cls(
            tokens=_sums(tile.output_tokens for tile in tiles),
            input_rows=_sums(tile.input_size for tile in tiles),
            frames=_sums(tile.frames for tile in tiles),
            item_of_tile=tuple(item for item, spec in enumerate(with_tiles) for _ in spec.tiles),
        )

    @property
    def num_tiles(self) -> int:
        """Tiles of the batch."""
        return len(self.item_of_tile)

    def num_tokens(self, first: int, end: int) -> int:
        """Return the output rows of the tiles from `first` up to `end`."""
        return self.tokens[end] - self.tokens[first]

    def num_items(self, first: int, end: int) -> int:
        """Return how many items have a tile from `first` up to `end`; there is at least one tile."""
        return self.item_of_tile[end - 1] - self.item_of_tile[first] + 1

    def fit(self, first: int, end: int, capacity: GraphCapacity) -> bool:
        """Whether the tiles from `first` up to `end` fit into one replay, on every axis."""
        return (
            self.tokens[end] - self.tokens[first] <= capacity.tokens
            and self.input_rows[end] - self.input_rows[first] <= capacity.input_rows
            and end - first <= capacity.tiles
            and self.item_of_tile[end - 1] - self.item_of_tile[first] < capacity.items
            and self.frames[end] - self.frames[first] <= capacity.frames
        )

    def run(self, first: int, end: int, budget: int | None, reason: EagerReason | None = None) -> PlannedRun:
        """Return the run of the tiles from `first` up to `end`."""
        rows = self.input_rows[end] - self.input_rows[first]
        return PlannedRun(first, end, self.num_tokens(first, end), rows, self.num_items(first, end), budget, reason)


def _sums(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(accumulate(values, initial=0))

"""The tiles of a batch one after another, with sums that tell at once what any neighbours take up of a graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from foveate.graphs.plan import EagerReason, PlannedRun
from foveate.graphs.protocol import EncoderItemSpec, TileSpec


@dataclass(frozen=True)
class FlatBatch:
    """Tiles, with sums over the first of them."""

    tiles: list[TileSpec]
    """The tiles."""
    tokens: list[int]
    """Sums of output rows: entry i is over the first i tiles, so there is one more than there are tiles."""
    item_of_tile: list[int]
    """For each tile, which of the items that have tiles it belongs to, counted from 0."""

    @classmethod
    def of(cls, specs: Sequence[EncoderItemSpec]) -> "FlatBatch":
        """Flatten a batch."""
        tiles: list[TileSpec] = []
        item_of_tile: list[int] = []
        item = 0
        for spec in specs:
            if spec.tiles:
                tiles += spec.tiles
                item_of_tile += [item] * len(spec.tiles)
                item += 1
        return cls(tiles, running_sums([tile.output_tokens for tile in tiles]), item_of_tile)

    @property
    def num_tiles(self) -> int:
        """Tiles of the batch."""
        return len(self.tiles)

    def run(self, first: int, end: int, budget: int | None, reason: EagerReason | None = None) -> PlannedRun:
        """Return the run of the tiles from `first` up to `end`; there is at least one."""
        tokens = self.tokens[end] - self.tokens[first]
        rows = sum([tile.input_size for tile in self.tiles[first:end]])
        items = self.item_of_tile[end - 1] - self.item_of_tile[first] + 1
        return PlannedRun(first, end, tokens, rows, items, budget, reason)


def running_sums(values: Iterable[int]) -> list[int]:
    """Return 0 and the sum of the first, of the first two, and so on."""
    return list(accumulate(values, initial=0))

"""What neighbouring tiles take up of a graph on each axis, and which is the smallest graph that holds it."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from foveate.graphs.flat_batch import FlatBatch, running_sums
from foveate.graphs.protocol import GraphCapacity


@dataclass(frozen=True)
class Axis:
    """One axis of a batch: the tiles from `first` up to `end` take up `ends[end] - begins[first]` of a graph."""

    ends: Sequence[int]
    """What is taken up to the end of each tile; entry 0 is 0, and entries never fall."""
    begins: Sequence[int]
    """What is taken before each tile."""
    smallest: Sequence[int]
    """Entry n: index of the smallest graph that holds n; no graph holds more than there are entries."""

    def smallest_graph(self, first: int, end: int) -> int:
        """Return the index of the smallest graph that holds these tiles on this axis; there is one."""
        return self.smallest[self.ends[end] - self.begins[first]]

    def reach(self, tiles: int) -> list[int]:
        """Return, for each of so many tiles, how far neighbours from it on fit into the largest graph."""
        ends, most = self.ends, len(self.smallest) - 1
        return [bisect_right(ends, begin + most) - 1 for begin in self.begins[:tiles]]


class GraphAxes:
    """Tells which axes of a batch may matter for these graphs.

    Invariant: a graph with more tokens holds no less on any axis; ValueError otherwise. So the smallest graph that
    holds tiles on all axes is the largest of the smallest graphs on each.
    """

    def __init__(self, capacities: Sequence[GraphCapacity]) -> None:
        """`capacities` ascend by tokens; there is at least one."""
        axes = ("tokens", "input_rows", "tiles", "items", "frames")
        limits = {axis: [int(getattr(capacity, axis)) for capacity in capacities] for axis in axes}
        for axis, values in limits.items():
            if values != sorted(values):
                raise ValueError(f"a graph of more tokens must hold as many {axis} as a smaller one; got {values}")
        self._smallest = {axis: smallest_graphs(values) for axis, values in limits.items()}
        # Tiles of more tokens than this fill every graph before its slots, tiles of fewer rows a token before its rows.
        self._crowding_tokens = max(each.tokens // (min(each.tiles, each.items) + 1) for each in capacities)
        self._rows_per_token = min(each.input_rows / each.tokens for each in capacities)

    def of(self, batch: FlatBatch) -> list[Axis]:
        """Return the axes on which this batch may fill a graph, tokens first. Few axes are planned sooner."""
        smallest, tiles = self._smallest, batch.tiles
        axes = [Axis(batch.tokens, batch.tokens, smallest["tokens"])]
        if min([tile.output_tokens for tile in tiles], default=inf) <= self._crowding_tokens:
            counts = range(len(tiles) + 1)
            items_at_end = [0, *(item + 1 for item in batch.item_of_tile)]
            axes.append(Axis(counts, counts, smallest["tiles"]))
            axes.append(Axis(items_at_end, batch.item_of_tile, smallest["items"]))
        rows_per_token = self._rows_per_token
        if any(tile.input_size > rows_per_token * tile.output_tokens for tile in tiles):
            rows = running_sums([tile.input_size for tile in tiles])
            axes.append(Axis(rows, rows, smallest["input_rows"]))
        if any(tile.frames for tile in tiles):
            frames = running_sums([tile.frames for tile in tiles])
            axes.append(Axis(frames, frames, smallest["frames"]))
        return axes


def smallest_graphs(limits: Sequence[int]) -> list[int]:
    """Return, for each number up to the last of `limits`, which ascend, the index of the first that reaches it."""
    smallest: list[int] = []
    for graph, limit in enumerate(limits):
        smallest += [graph] * (limit + 1 - len(smallest))
    return smallest

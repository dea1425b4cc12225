"""Batches of one size whatever is in them, so that one captured graph trains on all of them.

What is left of the capacity is filled with black tiles and with sequences of token 0 that nobody learns from: every row
belongs to a tile and every token to a sequence, so that attention leaves none of them unwritten.
"""

from dataclasses import dataclass

import torch
from network import PackedExamples
from torch import Tensor
from torch.nn import functional as F

LARGEST_TILE = (32, 32)
SMALL_TILE = (2, 32)
FILLER_TOKENS = 256
LEAST_TILE_ROWS = 256
"""Patches of the smallest tile that the processor makes: 64 image tokens."""
LONGEST = 4096
"""Tokens that no example exceeds."""


@dataclass(frozen=True)
class Capacity:
    """What a batch holds."""

    patch_rows: int
    tokens: int

    @property
    def tiles(self) -> int:
        """Tile slots: as many as there can be, and those of the filling."""
        filling = self.patch_rows // _area(LARGEST_TILE) + _area(LARGEST_TILE) // _area(SMALL_TILE)
        return self.patch_rows // LEAST_TILE_ROWS + filling

    @property
    def sequences(self) -> int:
        """Sequence slots."""
        return self.patch_rows // LEAST_TILE_ROWS + self.tokens // FILLER_TOKENS + 1


def padded(batch: PackedExamples, capacity: Capacity) -> PackedExamples:
    """Return the batch filled up to `capacity`, which has room for it and one token more."""
    rows, tokens = capacity.patch_rows - len(batch.patches), capacity.tokens - len(batch.token_ids)
    if rows < 0 or tokens < 1:
        raise ValueError(
            f"a batch of {len(batch.patches)} patches and {len(batch.token_ids)} tokens exceeds {capacity}"
        )
    fillers = torch.tensor(_filling_tiles(rows), dtype=torch.int32).view(-1, 2)
    shapes = torch.cat([batch.tile_shapes, fillers])
    lengths = [min(FILLER_TOKENS, tokens - first) for first in range(0, tokens, FILLER_TOKENS)]
    bounds = torch.cat([batch.bounds, batch.bounds[-1] + torch.tensor(lengths, dtype=torch.int32).cumsum(0).int()])
    if batch.longest > LONGEST:
        raise ValueError(f"an example has {batch.longest} tokens; at most {LONGEST} are planned for")
    return PackedExamples(
        patches=F.pad(batch.patches, (0, 0, 0, rows)),
        tile_shapes=F.pad(shapes, (0, 0, 0, capacity.tiles - len(shapes))),
        token_ids=F.pad(batch.token_ids, (0, tokens)),
        labels=F.pad(batch.labels, (0, tokens), value=-100),
        weights=F.pad(batch.weights, (0, tokens)),
        positions=torch.cat([batch.positions, *(torch.arange(length) for length in lengths)]),
        bounds=_held(bounds, capacity.sequences + 1),
        # The features of the filling go to the last token, which is part of the filling too.
        feature_rows=F.pad(batch.feature_rows, (0, rows // 4), value=capacity.tokens - 1),
        glyphs=F.pad(batch.glyphs, (0, 0, 0, rows // 4), value=-1),
        longest=LONGEST,
    )


def _held(bounds: Tensor, slots: int) -> Tensor:
    """Return the bounds with the last one repeated: sequences without tokens."""
    return torch.cat([bounds, bounds[-1:].expand(slots - len(bounds))])


def _filling_tiles(rows: int) -> list[tuple[int, int]]:
    """Return the shapes of tiles that make up `rows` patches, a multiple of four."""
    large, rest = divmod(rows, _area(LARGEST_TILE))
    small, rest = divmod(rest, _area(SMALL_TILE))
    return [LARGEST_TILE] * large + [SMALL_TILE] * small + ([(2, rest // 2)] if rest else [])


def _area(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]

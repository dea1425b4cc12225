"""Pictures → image features, eagerly or on captured graphs; the rest of the engine does not see the difference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.vision import ImageEncoder


@dataclass(frozen=True)
class EncoderReport:
    """What the encoder ran for a batch."""

    mode: str
    """`eager`, or the graph backend: `cuda_graph`, or `eager_buffers` where the same plans run without CUDA; `cache`
    where all features were there already."""
    real_tokens: int
    """Image tokens that were encoded, of all the requests that shared the call."""
    replays: tuple[int, ...] = ()
    """Token budgets of the graphs replayed, in order."""
    padded_tokens: int = 0
    """Rows of those replays that belong to no picture."""
    eager_runs: Mapping[str, int] = field(default_factory=dict)
    """Runs outside of graphs, by reason."""
    cached_tokens: int = 0
    """Image tokens of this request whose features were there already."""


@dataclass(frozen=True)
class EncodedImages:
    """Features of a batch."""

    features: list[Tensor]
    """For each picture `[image tokens, hidden_size]`."""
    report: EncoderReport


class ImageFeatureEncoder(Protocol):
    """Whatever encodes pictures."""

    def encode(self, batch: ImageBatch, most_ms: float | None = None) -> EncodedImages:
        """Encode a batch of at least one picture on the current stream.

        `most_ms` is how long one replay of a graph may take, where others are to go on beside it.
        """


class EagerImageEncoder:
    """Launches the kernels one by one, on exactly the rows there are. Works with `foveate.graphs` deleted."""

    def __init__(self, encoder: ImageEncoder) -> None:
        self._encoder = encoder

    def encode(self, batch: ImageBatch, most_ms: float | None = None) -> EncodedImages:  # noqa: ARG002 - no replays
        """Encode a batch."""
        rows = self._encoder.encode(batch)
        counts = batch.tokens_per_image(self._encoder.downsample_factor)
        return EncodedImages(list(rows.split(counts)), EncoderReport("eager", sum(counts)))

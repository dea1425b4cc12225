"""A conversation as it came → what the engine needs of it. Runs on any thread, beside decoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foveate.engine.clock import Span, StageClock
from foveate.engine.image_cache import ImageCache, ImageFeatures, identified
from foveate.errors import ImageError, PromptError
from foveate.images import ImageSource
from foveate.models.lfm2_vl.pixels import ImagePatches
from foveate.models.lfm2_vl.processing import Processor, image_sources
from foveate.models.lfm2_vl.tiles import TileGrid


@dataclass(frozen=True)
class PreparedImage:
    """One picture of a conversation: patches to be encoded, or its features, which were there already."""

    key: bytes | None
    """What it is known by in the cache of features; None where none are kept."""
    grid: TileGrid
    """How it was cut."""
    patches: ImagePatches | None
    rows: Tensor | None
    """`[image tokens, hidden_size]`"""


@dataclass(frozen=True)
class Prepared:
    """A conversation, ready to be run."""

    token_ids: list[int]
    """The prompt, with one placeholder for every image token."""
    ids: Tensor
    """The same, `[tokens]` int64 on the host."""
    images: list[PreparedImage]
    """Its pictures, in the order of their placeholders."""
    image_tokens: int
    """Placeholders among the tokens."""
    clock: StageClock
    """The stages it went through so far."""
    done: Span
    """Over when its patches are there."""


class Preparation:
    """Reads and cuts pictures, and makes prompts. Safe to use from several threads."""

    def __init__(self, processor: Processor, cache: ImageCache, device: torch.device, options: str) -> None:
        """`options` are whatever decides a picture's features beside its bytes."""
        self._processor, self._cache, self._device = processor, cache, device
        self._options = options.encode()

    def prepare(self, messages: Sequence[dict[str, Any]]) -> Prepared:
        """Prepare a conversation; raises ImageError on its first picture that cannot be used, and PromptError."""
        if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
            raise PromptError("a conversation is a list of messages {'role': …, 'content': …}; see also describe()")
        clock, done = StageClock(self._device), Span(self._device)
        with clock.host("identify"):
            pictures = [self._identified(source) for source in image_sources(messages)]
            known = [self._cache.get(key) if key else None for key, _ in pictures]
        missing = [source for (_, source), features in zip(pictures, known, strict=True) if features is None]
        with clock.device("decode_images"):
            decoded = self._processor.pictures.decode(missing)
        with clock.device("pixels"):
            patches = iter(self._processor.patches(decoded))
        images = [
            _known(key, features) if features else _new(key, next(patches))
            for (key, _), features in zip(pictures, known, strict=True)
        ]
        with clock.host("prompt"):
            token_ids = self._processor.prompts.encode(messages, [image.grid for image in images])
        done.stop()
        ids = torch.tensor(token_ids)
        image_tokens = int((ids == self._processor.config.image_token_id).sum())
        return Prepared(token_ids, ids, images, image_tokens, clock, done)

    def _identified(self, source: ImageSource) -> tuple[bytes | None, ImageSource]:
        if not self._cache.max_bytes:
            return None, source
        try:
            return identified(source, self._processor.pictures.limits, self._options)
        except ImageError:  # The decoder will say so, unless a picture before this one is refused as well.
            return None, source


def _known(key: bytes | None, features: ImageFeatures) -> PreparedImage:
    return PreparedImage(key, features.grid, None, features.rows)


def _new(key: bytes | None, patches: ImagePatches) -> PreparedImage:
    return PreparedImage(key, patches.grid, patches, None)

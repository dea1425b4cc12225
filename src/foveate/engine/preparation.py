"""A conversation as it came → what the engine needs of it. Runs on any thread, beside decoding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foveate.engine.clock import Span, StageClock
from foveate.engine.image_cache import ImageCache, ImageFeatures, identified
from foveate.errors import ImageError, PromptError
from foveate.images import ImageSource
from foveate.models.lfm2_vl.image_patches import ImagePatches
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


@dataclass
class _Begun:
    """A conversation on its way."""

    messages: Sequence[dict[str, Any]]
    clock: StageClock
    done: Span
    pictures: list[tuple[bytes | None, ImageSource]] = field(default_factory=list)
    known: list[ImageFeatures | None] = field(default_factory=list)
    decoded: Sequence[Any] = ()
    error: Exception | None = None

    @property
    def missing(self) -> list[ImageSource]:
        """Pictures whose features are not known."""
        pairs = zip(self.pictures, self.known, strict=True)
        return [source for (_, source), features in pairs if features is None]


class Preparation:
    """Reads and cuts pictures, and makes prompts. Safe to use from several threads."""

    def __init__(self, processor: Processor, cache: ImageCache, device: torch.device, options: str) -> None:
        """`options` are whatever decides a picture's features beside its bytes."""
        self._processor, self._cache, self._device = processor, cache, device
        self._options = options.encode()

    @property
    def most_at_once(self) -> int:
        """Conversations that are best prepared together, if so many wait."""
        return self._processor.pictures.most_at_once

    def prepare(self, messages: Sequence[dict[str, Any]]) -> Prepared:
        """Prepare a conversation; raises ImageError on its first picture that cannot be used, and PromptError."""
        (made,) = self.prepare_each([messages])
        if isinstance(made, Exception):
            raise made
        return made

    def prepare_each(self, conversations: Sequence[Sequence[dict[str, Any]]]) -> Iterator[Prepared | Exception]:
        """Prepare several, whose pictures are decoded together; yields each, or the error that it ended with, in order.

        A picture that cannot be used is the error of its own conversation alone.
        """
        begun = [self._begin(each) for each in conversations]
        self._decode([each for each in begun if isinstance(each, _Begun)])
        for each in begun:
            yield self._finish(each) if isinstance(each, _Begun) else each

    def _begin(self, messages: Sequence[dict[str, Any]]) -> "_Begun | Exception":
        try:
            if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
                raise PromptError("a conversation is a list of messages {'role': …, 'content': …}; see also describe()")
            begun = _Begun(messages, StageClock(self._device), Span(self._device))
            with begun.clock.host("identify"):
                begun.pictures = [self._identified(source) for source in image_sources(messages)]
                begun.known = [self._cache.get(key) if key else None for key, _ in begun.pictures]
        except Exception as error:
            return error
        return begun

    def _decode(self, all_begun: "Sequence[_Begun]") -> None:
        """Decode what is not known yet, all together; each conversation by itself where that fails."""
        try:
            span = Span(self._device)
            decoded = iter(self._processor.pictures.decode([each for begun in all_begun for each in begun.missing]))
            span.stop()
        except Exception as error:
            if len(all_begun) == 1:
                all_begun[0].error = error
                return
            for begun in all_begun:
                self._decode([begun])
            return
        for begun in all_begun:
            begun.decoded = [next(decoded) for _ in begun.missing]
            begun.clock.add_span("decode_images", span)

    def _finish(self, begun: "_Begun") -> Prepared | Exception:
        if begun.error is not None:
            return begun.error
        try:
            with begun.clock.device("pixels"):
                patches = iter(self._processor.patches(begun.decoded))
            images = [
                _known(key, features) if features else _new(key, next(patches))
                for (key, _), features in zip(begun.pictures, begun.known, strict=True)
            ]
            with begun.clock.host("prompt"):
                token_ids = self._processor.prompts.encode(begun.messages, [image.grid for image in images])
        except Exception as error:
            return error
        begun.done.stop()
        ids = torch.tensor(token_ids)
        image_tokens = int((ids == self._processor.config.image_token_id).sum())
        return Prepared(token_ids, ids, images, image_tokens, begun.clock, begun.done)

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

"""Pictures of several requests → features, in one call of the encoder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foveate.engine.clock import Span
from foveate.engine.encoding import EncoderReport, ImageFeatureEncoder
from foveate.engine.image_cache import ImageCache, ImageFeatures
from foveate.engine.preparation import PreparedImage
from foveate.engine.request import Request
from foveate.engine.streams import DeviceStreams
from foveate.models.lfm2_vl.image_batch import ImageBatch


@dataclass(frozen=True)
class EncoderCall:
    """Work given to the encoder. When its span is over, the requests have their features."""

    requests: Sequence[Request]
    span: Span
    faults: Sequence[tuple[Request, BaseException]]
    """Those whose pictures could not be encoded, even alone."""


class ImageStage:
    """Encodes what is not known yet, once for all who show it, and keeps it for those who show it later."""

    def __init__(
        self, encoder: ImageFeatureEncoder, cache: ImageCache, streams: DeviceStreams, device: torch.device
    ) -> None:
        self._encoder, self._cache, self._streams, self._device = encoder, cache, streams, device

    @torch.inference_mode()
    def launch(self, requests: Sequence[Request], most_ms: float | None = None) -> EncoderCall:
        """Encode the pictures of some requests, together; each alone where that fails, so that none harms another.

        `most_ms` is how long one replay of an encoder graph may take.
        """
        with self._streams.encode():
            span = Span(self._device)
            try:
                self._encode(requests, most_ms)
                faults: list[tuple[Request, BaseException]] = []
            except Exception as error:
                faults = self._encode_apart(requests, most_ms) if len(requests) > 1 else [(requests[0], error)]
            span.stop()
        failed = [request for request, _ in faults]
        return EncoderCall([each for each in requests if each not in failed], span, faults)

    def _encode_apart(self, requests: Sequence[Request], most_ms: float | None) -> list[tuple[Request, BaseException]]:
        faults: list[tuple[Request, BaseException]] = []
        for request in requests:
            try:
                self._encode([request], most_ms)
            except Exception as error:
                faults.append((request, error))
        return faults

    def _encode(self, requests: Sequence[Request], most_ms: float | None) -> None:
        for request in requests:
            request.prompt.done.wait_on_device()
        images = [image for request in requests for image in request.prompt.images]
        new = {_name(image): image for image in images if image.rows is None}
        report, made = EncoderReport("cache", 0), dict[object, Tensor]()
        if new:
            patches = [image.patches for image in new.values() if image.patches is not None]
            for each in patches:
                self._streams.used_by_encode(each.patches)
            encoded = self._encoder.encode(ImageBatch.of(patches), most_ms)
            report, made = encoded.report, dict(zip(new, encoded.features, strict=True))
            self._keep(new.values(), made)
        for request in requests:
            own = [made[_name(image)] if image.rows is None else image.rows for image in request.prompt.images]
            request.features = self._streams.used_by_decode(torch.cat(own))
            known = sum(len(image.rows) for image in request.prompt.images if image.rows is not None)
            is_known = known == len(request.features)
            request.encoder = replace(EncoderReport("cache", 0) if is_known else report, cached_tokens=known)

    def _keep(self, images: Iterable[PreparedImage], made: dict[object, Tensor]) -> None:
        for image in images:
            if image.key is not None:
                self._cache.put(image.key, ImageFeatures(image.grid, made[_name(image)]))


def _name(image: PreparedImage) -> object:
    """What tells pictures of one call apart."""
    return image.key or id(image)

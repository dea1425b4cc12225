"""What goes on, given to the device: a decode step for all who answer, and chunks of the prompts of those to come."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.engine.clock import Span
from foveate.engine.decoder import Decoder
from foveate.engine.prefill import Prefill
from foveate.engine.request import Request, Stage
from foveate.engine.sampler import SamplingKind
from foveate.engine.scheduler import Scheduler


@dataclass(frozen=True)
class Launched:
    """Work on the device whose tokens the host has not read."""

    stage: str
    """`prefill` or `decode`."""
    requests: Sequence[Request]
    """All that took part."""
    takers: Sequence[Request]
    """Those that get a token."""
    tokens: Tensor | None
    """`[len(takers)]` on the host, there when the span is over; None where nobody gets one."""
    span: Span


Fault = tuple[Sequence[Request], BaseException]


class Launcher:
    """Launches, and keeps the requests' account of what was launched. Waits for nothing."""

    def __init__(self, scheduler: Scheduler, prefill: Prefill, decoder: Decoder, device: torch.device) -> None:
        self._scheduler, self._prefill, self._decoder, self._device = scheduler, prefill, decoder, device

    def launch(self) -> tuple[list[Launched], list[Fault]]:
        """Give the device whatever can go on; returns what was given, and what failed and for whom."""
        launched: list[Launched] = []
        faults: list[Fault] = []
        # Decoding first: what is spoken already goes on before new prompts come in.
        for launch in (self._launch_decode, self._launch_prefill):
            result = launch()
            if isinstance(result, Launched):
                launched.append(result)
            elif result is not None:
                faults.append(result)
        return launched, faults

    def _launch_decode(self) -> Launched | Fault | None:
        requests = self._scheduler.decodable()
        if not requests:
            return None
        slots = [request.memory.slot for request in requests if request.memory is not None]
        span = Span(self._device)
        try:
            tokens = self._decoder.launch(slots, max(request.kind for request in requests))
        except BaseException as error:
            return requests, error
        for request in requests:
            request.launched += 1
        return self._launched("decode", requests, requests, tokens, span)

    def _launch_prefill(self) -> Launched | Fault | None:
        shares = self._scheduler.prefill_shares()
        if not shares:
            return None
        requests = [request for request, _ in shares]
        takers = [request for request, tokens in shares if tokens == request.unprefilled]
        kind = max((request.kind for request in takers), default=SamplingKind.GREEDY)
        span = Span(self._device)
        try:
            first = self._prefill.run([request.chunk(tokens) for request, tokens in shares], kind)
        except BaseException as error:
            if len(requests) == 1 or not isinstance(error, Exception):
                return requests, error
            for request in requests:
                self._scheduler.restart(request)
            return None
        for request, tokens in shares:
            request.prefilled += tokens
        for index, request in enumerate(takers):
            request.stage, request.launched = Stage.DECODING, 1
            if request.keeps_first_logits and first is not None:
                request.first_logits = first.logits[index].clone()
        return self._launched("prefill", requests, takers, first.tokens if first else None, span)

    def _launched(
        self, stage: str, requests: Sequence[Request], takers: Sequence[Request], tokens: Tensor | None, span: Span
    ) -> Launched:
        on_host = None
        if tokens is not None:
            on_host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=tokens.is_cuda)
            on_host.copy_(tokens, non_blocking=True)
        span.stop()
        return Launched(stage, requests, takers, on_host, span)

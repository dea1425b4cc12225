"""One request on its way through the engine, and what its sender hears of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.caches import SequenceMemory
from foveate.engine.clock import StageClock
from foveate.engine.encoding import EncoderReport
from foveate.engine.prefill import Chunk
from foveate.engine.preparation import Prepared
from foveate.engine.sampler import SamplingKind, sampling_kind
from foveate.engine.sequence import Sequence


class Stage(Enum):
    """Where a request is."""

    PREPARING = "preparing"
    """Its pictures are read and cut."""
    WAITING = "waiting"
    """It waits for pages and a slot."""
    ENCODING = "encoding"
    """It has both; its pictures wait for the encoder, or are in it."""
    PREFILLING = "prefilling"
    DECODING = "decoding"
    ENDED = "ended"


@dataclass(frozen=True)
class TextPiece:
    """One more token, and the text that became certain with it, perhaps none."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The end: an answer."""

    answer: Answer
    first_logits: Tensor | None = None
    """`[vocab_size]` float32, where they were asked for."""


@dataclass(frozen=True)
class Failed:
    """The end: an error."""

    error: BaseException


@dataclass(frozen=True)
class Cancelled:
    """The end that the sender asked for."""


Event = TextPiece | Finished | Failed | Cancelled
Sink = Callable[[Event], None]
"""Takes events, on the engine's thread: it must not wait. After the last three kinds none follows."""


@dataclass(eq=False)
class Request:
    """A request. All but the constructor's arguments belongs to the engine's thread."""

    params: SamplingParams
    sink: Sink
    sequence: Sequence
    image_token_id: int
    clock: StageClock
    """Stages behind the preparation."""
    keeps_first_logits: bool = False
    prepared: Prepared | None = None
    stage: Stage = Stage.PREPARING
    arrival: int = 0
    """A number that grows from request to request."""
    overtakes: int = 0
    """How many later requests have gone before it since it became the first to wait."""
    memory: SequenceMemory | None = None
    features: Tensor | None = None
    """`[image tokens, hidden_size]`"""
    encoder: EncoderReport | None = None
    prefilled: int = 0
    """Prompt tokens that have been given to the device."""
    prefills_alone: bool = False
    """After a step with others failed, so that it is known whose fault it is."""
    launched: int = 0
    """Tokens of the answer that have been given to the device to find, read or not."""
    first_logits: Tensor | None = None
    queued_s: float = 0.0
    """When it began to wait for memory, by the host's clock."""
    sent_s: float = field(default_factory=time.perf_counter)
    token_times_ms: list[float] = field(default_factory=list)

    @property
    def prompt(self) -> Prepared:
        """The prepared conversation, once there is one."""
        assert self.prepared is not None
        return self.prepared

    @property
    def most_tokens(self) -> int:
        """Tokens that it may have in the caches."""
        return len(self.prompt.token_ids) + self.params.max_tokens

    @property
    def kind(self) -> SamplingKind:
        """What it needs of the sampler."""
        return sampling_kind(self.params)

    @property
    def is_ended(self) -> bool:
        """Whether its sender has heard its end."""
        return self.stage is Stage.ENDED

    @property
    def unprefilled(self) -> int:
        """Prompt tokens that have not been given to the device."""
        return len(self.prompt.token_ids) - self.prefilled

    def chunk(self, tokens: int) -> Chunk:
        """Return the next so many tokens of its prompt, with the features of the placeholders among them."""
        assert self.memory is not None
        ids, first = self.prompt.ids, self.prefilled
        chosen = ids[first : first + tokens]
        features = None
        if self.features is not None:
            before, placeholders = (int((part == self.image_token_id).sum()) for part in (ids[:first], chosen))
            features = self.features[before : before + placeholders] if placeholders else None
        return Chunk(self.memory, chosen, features, is_last=first + tokens == len(ids))

    def take(self, token: int) -> None:
        """Take the next token of the answer and tell the sender; ends the request where the answer ends."""
        piece = self.sequence.add(token)
        self.token_times_ms.append((time.perf_counter() - self.sent_s) * 1e3)
        self._tell(TextPiece(piece))
        if self.sequence.is_finished:
            self.end(Finished(self._answer(), self.first_logits))

    def end(self, event: Finished | Failed | Cancelled) -> None:
        """Tell the sender how it ended; only the first time."""
        if not self.is_ended:
            self.stage = Stage.ENDED
            self._tell(event)

    def _tell(self, event: Event) -> None:
        try:
            self.sink(event)
        except BaseException:  # Whoever listened has gone, perhaps with its event loop; that must harm nobody else.
            self.stage = Stage.ENDED

    def _answer(self) -> Answer:
        assert self.sequence.finish_reason is not None
        return Answer(
            text=self.sequence.text,
            token_ids=tuple(self.sequence.token_ids),
            prompt_tokens=len(self.prompt.token_ids),
            finish_reason=self.sequence.finish_reason,
            stages_ms={**self.prompt.clock.milliseconds(), **self.clock.milliseconds()},
            encoder=self.encoder,
            image_tokens=self.prompt.image_tokens,
            token_times_ms=tuple(self.token_times_ms),
        )

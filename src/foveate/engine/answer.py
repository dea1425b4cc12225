"""What comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from foveate.engine.encoding import EncoderReport

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    """The answer, without special tokens and without the stop text that ended it."""
    token_ids: tuple[int, ...]
    """Every token that was generated, the one that ended the answer included."""
    prompt_tokens: int
    """Tokens of the prompt, image tokens included."""
    finish_reason: FinishReason
    """`stop`: a stop token or a stop text came; `length`: `max_tokens` was reached."""
    stages_ms: Mapping[str, float]
    """Milliseconds of each stage; answers generated at the same time share the stages they ran in."""
    encoder: EncoderReport | None = None
    """What the image encoder ran; None when there were no pictures."""
    image_tokens: int = 0
    """Tokens of the prompt that stand for pictures."""
    token_times_ms: tuple[float, ...] = ()
    """When each token reached the host, in milliseconds since the request was handed in."""

    @property
    def completion_tokens(self) -> int:
        """Tokens that were generated."""
        return len(self.token_ids)

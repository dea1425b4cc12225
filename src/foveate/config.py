"""Settings that people give: checked once, frozen, with the bound in the message."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foveate.errors import ConfigurationError

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen and when an answer ends. Raises ConfigurationError on a value out of bounds."""

    max_tokens: int = 256
    """Most tokens of the answer; at least 1."""
    temperature: float = 0.0
    """0 takes the likeliest token; higher values flatten the distribution."""
    top_p: float = 1.0
    """Keep the likeliest tokens that together reach this probability; 1 keeps all."""
    top_k: int = 0
    """Keep this many of the likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least this many times as likely as the likeliest; 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divide the logits of tokens seen before, prompt included (multiply, if negative); 1 changes nothing."""
    presence_penalty: float = 0.0
    """Taken off the logits of tokens that the answer holds already; -2 to 2."""
    frequency_penalty: float = 0.0
    """Taken off the logits of a token once for each time that the answer holds it; -2 to 2."""
    stop: Sequence[str] = ()
    """Texts that end the answer; they are not part of it."""
    seed: int | None = None
    """Makes sampling repeatable, whatever else is answered at the same time; None draws a fresh one."""
    ignore_stop_tokens: bool = False
    """Go on to `max_tokens` whatever the model says, for measuring."""

    def __post_init__(self) -> None:
        _check_int("max_tokens", self.max_tokens, 1, None)
        _check_number("temperature", self.temperature, 0, 100)
        _check_number("top_p", self.top_p, 0, 1, open_low=True)
        _check_int("top_k", self.top_k, 0, None)
        _check_number("min_p", self.min_p, 0, 1)
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _check_number("presence_penalty", self.presence_penalty, -2, 2)
        _check_number("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.seed is not None:
            _check_int("seed", self.seed, 0, MAX_SEED)
        texts = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text for text in texts):
            raise ConfigurationError(f"stop is {self.stop!r}; give texts of at least one character")
        object.__setattr__(self, "stop", tuple(texts))

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature == 0


def _check_int(name: str, value: object, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigurationError(f"{name} is {value!r}; give a whole number, {bound}")


def _check_number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high or (open_low and number == low):
        above = f"above {low}" if open_low else f"from {low}"
        raise ConfigurationError(f"{name} is {value!r}; give a number {above} to {high}")

"""How large the engine is, and how it shares its steps out. Checked once, with the bound in the message."""

from dataclasses import dataclass

from foveate.errors import ConfigurationError

CPU_CACHE_MEGABYTES = 1024.0
"""Size of the caches on a CPU, unless it is stated. Memory that no answer has used yet is not taken."""


@dataclass(frozen=True)
class EngineSettings:
    """Raises ConfigurationError on a value out of bounds."""

    max_running: int = 32
    """Most answers that are encoded, prefilled or decoded at a time; 1 to 512."""
    prefill_tokens_per_step: int = 2048
    """Most prompt tokens that run between two decode steps: fewer keep the words of others coming evenly."""
    cache_fraction: float = 0.5
    """On CUDA, the part for the caches of the memory that is free beside weights and encoder graphs; up to 0.95."""
    cache_megabytes: float | None = None
    """Megabytes of the caches, instead of that fraction; on a CPU 1024 by default."""
    image_cache_megabytes: float = 256.0
    """Megabytes of the features that are kept of pictures, should they come again; 0 keeps none."""
    max_waiting: int = 1024
    """Most requests that wait; the next is refused. At least 1: every request waits for a moment."""
    max_overtakes: int = 64
    """How many later requests may go before the first one that waits for memory."""
    images_per_encode: int = 16
    """Most pictures, of whatever requests, in one call of the encoder; a request's own are never parted."""
    encoder_replay_ms: float = 6.0
    """Most milliseconds of one replay of an encoder graph while others are answered, so that the card comes to their
    steps in between; a full tile takes what it takes."""
    steps_ahead: int | None = None
    """1 launches a step before the tokens of the last one are read, 0 does not; by default 1 on CUDA, 0 on a CPU."""
    pixel_threads: int = 4
    """Threads that read and cut the pictures of requests; 1 to 64."""

    def __post_init__(self) -> None:
        for name, low, high in _WHOLE:
            value = getattr(self, name)
            if value is None and name == "steps_ahead":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigurationError(f"{name} is {value!r}; give a whole number from {low} to {high}")
        for name, number_low, number_high in _NUMBERS:
            value = getattr(self, name)
            if value is None and name == "cache_megabytes":
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not number_low <= value <= number_high:
                raise ConfigurationError(f"{name} is {value!r}; give a number from {number_low:g} to {number_high:g}")


_WHOLE = (
    ("max_running", 1, 512),
    ("prefill_tokens_per_step", 1, 2**20),
    ("max_waiting", 1, 2**20),
    ("max_overtakes", 0, 2**20),
    ("images_per_encode", 1, 4096),
    ("steps_ahead", 0, 1),
    ("pixel_threads", 1, 64),
)
_NUMBERS = (
    ("cache_fraction", 0.001, 0.95),
    ("cache_megabytes", 0.001, 1e7),
    ("image_cache_megabytes", 0, 1e7),
    ("encoder_replay_ms", 0.001, 1e6),
)

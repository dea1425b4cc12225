"""The switches of the encoder graphs. Those that vLLM has too have the names that it gave them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from foveate.errors import ConfigurationError

MOST_BUDGETS = 64
"""More graphs than this is a mistake: each costs memory and start-up time."""
EncoderPlan = Literal["auto", "fixed"]
_LOWEST_COUNTS = {"encoder_cudagraph_max_vision_items_per_batch": 1, "encoder_cudagraph_max_frames_per_batch": 0}


@dataclass(frozen=True)
class EncoderGraphSettings:
    """What `compilation_config` may hold. None means automatic. Raises ConfigurationError on a wrong value."""

    cudagraph_mm_encoder: bool | None = None
    """Whether the encoder runs as graphs; automatic is yes where CUDA is."""
    encoder_cudagraph_token_budgets: tuple[int, ...] | None = None
    """Output tokens of each graph; automatic fits the model's tiles."""
    encoder_cudagraph_max_vision_items_per_batch: int | None = None
    """Most items with tiles in one replay; automatic is as many as there are tile slots."""
    encoder_cudagraph_max_frames_per_batch: int | None = None
    """Most video frames in one replay; automatic is as many as that many videos can have, 0 for models without video.
    """
    encoder_plan: EncoderPlan = "auto"
    """`auto` runs a batch in the cheapest way; `fixed` runs each image alone and always in the same way, so that it has
    the same bits in any company."""

    def __post_init__(self) -> None:
        if not isinstance(self.cudagraph_mm_encoder, bool | None):
            raise ConfigurationError(f"cudagraph_mm_encoder is {self.cudagraph_mm_encoder!r}; give true or false")
        if self.encoder_plan not in get_args(EncoderPlan):
            raise ConfigurationError(f"encoder_plan is {self.encoder_plan!r}; allowed are auto and fixed")
        object.__setattr__(self, "encoder_cudagraph_token_budgets", _budgets(self.encoder_cudagraph_token_budgets))
        for name, low in _LOWEST_COUNTS.items():
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), low)


def parse_settings(value: str | Mapping[str, Any] | EncoderGraphSettings | None) -> EncoderGraphSettings:
    """Read a `compilation_config`: an object, its JSON text, or `@` and the name of a file that holds that.

    Raises ConfigurationError that names the key, or the file.
    """
    if value is None or isinstance(value, EncoderGraphSettings):
        return value or EncoderGraphSettings()
    if isinstance(value, str):
        value = _text_of_file(value[1:]) if value.startswith("@") else value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the compilation config is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"the compilation config is {value!r}; give an object such as {{}}")
    allowed = [field.name for field in fields(EncoderGraphSettings)]
    unknown = [str(key) for key in value if key not in allowed]
    if unknown:
        raise ConfigurationError(
            f"unknown key {unknown[0]!r} in the compilation config; allowed are {', '.join(allowed)}"
        )
    return EncoderGraphSettings(**value)


def _text_of_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"the compilation config {name!r} cannot be read: {reason}") from None


def _budgets(value: object) -> tuple[int, ...] | None:
    name = "encoder_cudagraph_token_budgets"
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ConfigurationError(f"{name} is {value!r}; give a list of whole numbers such as [64, 256, 1024]")
    if not 1 <= len(value) <= MOST_BUDGETS:
        raise ConfigurationError(f"{name} has {len(value)} entries; give 1 to {MOST_BUDGETS}, or leave it out")
    for budget in value:
        _check_count(name, budget, 1)
    return tuple(sorted(set(value)))


def _check_count(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigurationError(f"{name} holds {value!r}; give whole numbers of at least {low}")

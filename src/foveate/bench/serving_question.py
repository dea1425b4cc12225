"""What `foveate bench latency` and `foveate bench throughput` are asked."""

from dataclasses import dataclass
from pathlib import Path

import torch

from foveate.errors import ConfigurationError

WAYS = ("graph", "eager")
LAYOUT_ON_CUDA, LAYOUT_ON_CPU = "LFM2.5-VL-450M", "tiny"
ROUNDS, ROUNDS_ON_CPU = 10, 3
MOST_AT_ONCE, MOST_TOKENS, SIDES = 512, 4096, (16, 8192)


@dataclass(frozen=True)
class ServingQuestion:
    """What is to be measured. Raises ConfigurationError on a wrong value."""

    model: str | None = None
    """A checkpoint folder or a hub name."""
    layout: str | None = None
    """Without a model, a public layout, which gets random weights."""
    sizes: tuple[tuple[int, int], ...] = ((512, 512), (1920, 1080))
    """Width and height of drawn pictures, in pixels; one row of the table each."""
    pictures: Path | None = None
    """A folder of pictures that are asked about instead, each in its turn."""
    output_tokens: tuple[int, ...] = (1, 64)
    """Tokens of each answer, whatever the model says; one row each."""
    at_once: tuple[int, ...] = (1,)
    """Requests that are sent at the same time; one row each."""
    ways: tuple[str, ...] = WAYS
    """`graph`, `eager` or both: how the image encoder runs."""
    rounds: int | None = None
    """Times that each row is run; 10 by default, 3 on a CPU."""
    device: str = "auto"
    """As in `foveate.load`."""
    dtype: str = "auto"
    """As in `foveate.load`."""
    compilation_config: str | None = None
    """Switches of the encoder graphs."""

    def __post_init__(self) -> None:
        if self.model is not None and self.layout is not None:
            raise ConfigurationError("both a model and a layout are given; give one of them")
        if self.rounds is not None and self.rounds < 1:
            raise ConfigurationError(f"rounds is {self.rounds}; give at least 1")
        for way in self.ways:
            if way not in WAYS:
                raise ConfigurationError(f"graphs holds {way!r}; allowed are {', '.join(WAYS)}")
        for name, values, most in (
            ("output_tokens", self.output_tokens, MOST_TOKENS),
            ("concurrency", self.at_once, MOST_AT_ONCE),
        ):
            if not values or not all(1 <= value <= most for value in values):
                told = ", ".join(map(str, values)) or "empty"
                raise ConfigurationError(f"{name} is {told}; give whole numbers from 1 to {most}")
        low, high = SIDES
        told = ", ".join("{}x{}".format(*size) for size in self.sizes) or "empty"
        if not self.pictures and (
            not self.sizes or not all(low <= side <= high for size in self.sizes for side in size)
        ):
            raise ConfigurationError(f"sizes is {told}; give widths and heights from {low} to {high} pixels")

    def layout_on(self, device: torch.device) -> str:
        """Return the layout to make where no model is given."""
        return self.layout or (LAYOUT_ON_CUDA if device.type == "cuda" else LAYOUT_ON_CPU)

    def rounds_on(self, device: torch.device) -> int:
        """Return how often each row is run."""
        return self.rounds or (ROUNDS if device.type == "cuda" else ROUNDS_ON_CPU)

"""What `foveate bench encoder` is asked."""

from dataclasses import dataclass

import torch

from foveate.errors import ConfigurationError

WAYS = ("eager", "graph", "transformers", "transformers-compile", "vllm")
SMALLEST_LAYOUT = "LFM2.5-VL-450M"
ROUNDS, ROUNDS_ON_CPU = 30, 3


@dataclass(frozen=True)
class EncoderQuestion:
    """What is to be measured. Raises ConfigurationError on a wrong value."""

    model: str | None = None
    """A checkpoint folder or a hub name."""
    layout: str | None = None
    """Without a model, a public layout, which gets random weights; by default the smallest, on a CPU `tiny`."""
    ways: tuple[str, ...] = ("eager", "graph", "transformers")
    """Some of `WAYS`; `eager` is always measured, as the others are checked against it."""
    tiles: tuple[int, ...] = ()
    """Full tiles of each batch; without them, the rows of the published tables, on a CPU the first three."""
    rounds: int | None = None
    """Timed calls of each way and row; 30 by default, 3 on a CPU."""
    device: str = "auto"
    """As in `foveate.load`."""
    dtype: str = "auto"
    """As in `foveate.load`."""
    compilation_config: str | None = None
    """Switches of our encoder graphs."""
    vllm_python: str | None = None
    """The Python that has vLLM, if it is another one."""

    def __post_init__(self) -> None:
        for way in self.ways:
            if way not in WAYS:
                raise ConfigurationError(f"with holds {way!r}; allowed are {', '.join(WAYS)}")
        if self.model is not None and self.layout is not None:
            raise ConfigurationError("both a model and a layout are given; give one of them")
        if self.rounds is not None and self.rounds < 1:
            raise ConfigurationError(f"rounds is {self.rounds}; give at least 1")

    def layout_on(self, device: torch.device) -> str:
        """Return the layout to make where no model is given."""
        return self.layout or (SMALLEST_LAYOUT if device.type == "cuda" else "tiny")

    def rounds_on(self, device: torch.device) -> int:
        """Return the timed calls of each way and row."""
        return self.rounds or (ROUNDS if device.type == "cuda" else ROUNDS_ON_CPU)

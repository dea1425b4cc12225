"""Checkpoints with random weights whose encoder is that of a public layout, and whose language model is short."""

from dataclasses import replace
from pathlib import Path

from foveate.checkpoints import CheckpointLayout, layout, new_checkpoint
from foveate.checkpoints.writing import Progress

LANGUAGE_LAYERS = 3
"""Two convolutions and an attention: what loads in every engine. The encoder does not know the difference."""


def encoder_layout(name: str) -> CheckpointLayout:
    """Return a public layout, or `tiny`, with the first layers of its language model alone.

    Raises ConfigurationError on an unknown name.
    """
    whole = layout(name)
    kinds = list(whole.text["layer_types"])[:LANGUAGE_LAYERS]
    text = {**whole.text, "layer_types": kinds, "num_hidden_layers": LANGUAGE_LAYERS}
    return replace(whole, config={**whole.config, "text_config": text})


def encoder_checkpoint(folder: Path, name: str, dtype: str, progress: Progress | None = None) -> Path:
    """Write such a checkpoint in a type, under 2 GB for the largest layout, and return its folder."""
    return new_checkpoint(folder, encoder_layout(name), dtype=dtype, progress=progress)

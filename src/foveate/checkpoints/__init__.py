"""Checkpoints of LFM2-VL's true layout with seeded random weights and a working tokenizer.

For tests, demonstrations and benchmarks where trained weights are not at hand or not needed. They are not a model that
answers anything: their words are pronounceable and mean nothing, though they depend on the picture.
"""

from foveate.checkpoints.layout import CheckpointLayout, SpecialTokens
from foveate.checkpoints.layouts import LAYOUT_NAMES, layout
from foveate.checkpoints.shrinking import shrunk
from foveate.checkpoints.tensors import random_tensors
from foveate.checkpoints.writing import new_checkpoint

__all__ = [
    "LAYOUT_NAMES",
    "CheckpointLayout",
    "SpecialTokens",
    "layout",
    "new_checkpoint",
    "random_tensors",
    "shrunk",
]

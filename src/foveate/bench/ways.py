"""The ways to encode a batch that are measured in this process: ours, and those of transformers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveate.engine.encoding import EagerImageEncoder, ImageFeatureEncoder
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel

EncoderCall = Callable[[], Sequence[Tensor]]
"""Encodes one batch; the features `[image tokens, hidden_size]` of its pictures or of its tiles, in order."""
Way = Callable[[ImageBatch], EncoderCall]
"""Makes that call; what it does with the batch before is not timed."""

COMPILE_MODE = "reduce-overhead"
"""Its graphs of the kernels it makes are what a tower bound by its launches gains most from. Autotuning, the other
choice, searches for minutes for every number of tiles."""
MOST_COMPILED_SHAPES = 64
DESCRIPTIONS = {
    "eager": "Foveate, kernel by kernel",
    "graph": "Foveate, captured graphs by measured cost",
    "transformers": "transformers' get_image_features, eager, sdpa attention",
    "transformers-compile": f"the same under torch.compile(mode='{COMPILE_MODE}', dynamic=False)",
    "vllm eager": "vLLM without encoder graphs, in a process of its own",
    "vllm graph": "vLLM with its automatic budgets, in a process of its own",
    "vllm tuned": "vLLM with budgets that fit LFM2-VL, in a process of its own",
}


def our_way(encoder: ImageFeatureEncoder) -> Way:
    """Return how one of our encoders takes a batch."""
    return lambda batch: lambda: encoder.encode(batch).features


def eager_way(model: Lfm2VlModel) -> Way:
    """Return our way without graphs."""
    return our_way(EagerImageEncoder(model.encoder))


class TransformersWays:
    """The vision tower and the projector of transformers, from the same checkpoint."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, most_patches: int) -> None:
        from transformers import AutoModelForImageTextToText
        from transformers.utils import logging as hub_logging

        hub_logging.disable_progress_bar()
        whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
        self._model: Any = whole.model.to(device).eval()
        self._most_patches = most_patches

    def eager(self, batch: ImageBatch) -> EncoderCall:
        """Take a batch as transformers does."""
        inputs = padded_inputs(batch, self._most_patches)
        return partial(self._encode, self._model.get_image_features, inputs)

    def compiled(self, batch: ImageBatch) -> EncoderCall:
        """Take a batch compiled; compiles for its number of tiles, which may take a minute."""
        inputs = padded_inputs(batch, self._most_patches)
        encode: Any = torch.compile(self._model.get_image_features, mode=COMPILE_MODE, dynamic=False)
        settings: Any = torch._dynamo.config
        # Beyond torch's own limit of 8 it would be timed uncompiled, in silence.
        with quietly(), settings.patch(recompile_limit=MOST_COMPILED_SHAPES):
            encode(**inputs)

        def call() -> Sequence[Tensor]:
            torch.compiler.cudagraph_mark_step_begin()  # or a replay might wait for the last one's outputs to be let go
            return self._encode(encode, inputs)

        return call

    @staticmethod
    def _encode(encode: Callable[..., Any], inputs: dict[str, Tensor]) -> Sequence[Tensor]:
        return encode(**inputs).pooler_output


@contextmanager
def quietly() -> Iterator[None]:
    """Drop warnings to the log: a compiler writes pages about code that is not ours to mend."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def padded_inputs(batch: ImageBatch, most_patches: int) -> dict[str, Tensor]:
    """Return a batch as transformers has it.

    `pixel_values` are `[tiles, most_patches, patch_width]` with zeros behind each tile's patches,
    `pixel_attention_mask` is `[tiles, most_patches]`, `spatial_shapes` `[tiles, 2]`.
    """
    count, device = len(batch.tiles), batch.patches.device
    pixels = batch.patches.new_zeros(count, most_patches, batch.patches.shape[1])
    mask = torch.zeros(count, most_patches, dtype=torch.int32, device=device)
    for index, patches in enumerate(batch.patches.split([tile.num_patches for tile in batch.tiles])):
        pixels[index, : patches.shape[0]], mask[index, : patches.shape[0]] = patches, 1
    return {
        "pixel_values": pixels,
        "spatial_shapes": batch.tile_shapes().long().to(device),
        "pixel_attention_mask": mask,
    }

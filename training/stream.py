"""Endless packed batches, drawn by worker processes from seeds: a run can go on where it stopped."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from glyphs import glyph_labels, unlabelled
from lessons import Lesson, draw_lesson
from network import PackedExamples
from padding import Capacity, padded
from torch.utils.data import IterableDataset, get_worker_info
from torchvision.transforms.v2 import functional as transforms

from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.pixels import cut, patchify
from foveate.models.lfm2_vl.processing import Processor
from foveate.models.lfm2_vl.tiles import plan_tiles
from foveate.vlm import question

IGNORED = -100


@dataclass(frozen=True)
class PreparedExample:
    """One lesson as numbers."""

    patches: torch.Tensor
    shapes: list[tuple[int, int]]
    token_ids: list[int]
    weights: list[float]
    """What it counts to predict each token: 0 outside of answers; an answer counts the square root of its length."""
    glyphs: torch.Tensor
    """Labels of its image tokens (see `glyphs`)."""


class ExampleStream(IterableDataset[PackedExamples]):
    """Packed batches for one worker after another, all of one size; `mixture` gives the weight of each lesson."""

    def __init__(self, processor: Processor, mixture: Mapping[str, float], capacity: Capacity, *, start: int) -> None:
        super().__init__()
        self._processor = processor
        self._kinds, self._weights = list(mixture), list(mixture.values())
        self._capacity = capacity
        self._start = start

    def __iter__(self) -> Iterator[PackedExamples]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        torch.set_num_threads(1)
        seed = self._start + worker
        waiting: list[PreparedExample] = []
        while True:
            kind = random.Random(seed).choices(self._kinds, self._weights)[0]
            example = prepare(draw_lesson(kind, seed), self._processor)
            seed += workers
            if waiting and not self._fits([*waiting, example]):
                yield padded(pack(waiting, self._processor.config), self._capacity)
                waiting = []
            waiting.append(example)

    def _fits(self, examples: list[PreparedExample]) -> bool:
        """Whether there is room for all, and for one token of filling."""
        rows, tokens = (
            sum(sizes) for sizes in zip(*((len(e.patches), len(e.token_ids)) for e in examples), strict=True)
        )
        return rows <= self._capacity.patch_rows and tokens < self._capacity.tokens


def prepare(lesson: Lesson, processor: Processor) -> PreparedExample:
    """Cut the pictures and encode the conversation."""
    settings = processor.config.images
    grids = [plan_tiles(picture.width, picture.height, settings) for picture in lesson.pictures]
    patches = []
    for picture, grid in zip(lesson.pictures, grids, strict=True):
        pixels = transforms.pil_to_tensor(picture)
        patches += [patchify(tile, settings.patch_size) for tile in cut(pixels, grid, settings)]
    shapes = [(tile.rows, tile.columns) for grid in grids for tile in grid.tiles]
    if lesson.glyphs is None:
        labels = unlabelled(sum(rows * columns for rows, columns in shapes) // 4)
    else:
        labels = glyph_labels(lesson.glyphs, *lesson.pictures[0].size, grids[0])
    token_ids, weights = _conversation(lesson, processor)
    return PreparedExample(torch.cat(patches), shapes, token_ids, weights, labels)


def _conversation(lesson: Lesson, processor: Processor) -> tuple[list[int], list[float]]:
    """Return the tokens of all turns, and the weight of each as a label."""
    grids = [plan_tiles(picture.width, picture.height, processor.config.images) for picture in lesson.pictures]
    end = next(iter(processor.config.stop_token_ids))
    messages, token_ids, weights = [], [], []
    for index, (asked, answer) in enumerate(lesson.turns):
        messages.append(question(["" for _ in grids] if index == 0 else [], asked))
        prompt = processor.prompts.encode(messages, grids)  # begins with all that was said before
        weights += [0.0] * (len(prompt) - len(token_ids))
        answer_ids = [*processor.prompts.tokenizer(answer, add_special_tokens=False)["input_ids"], end]
        token_ids = [*prompt, *answer_ids]
        weights += [len(answer_ids) ** -0.5] * len(answer_ids)
        messages.append({"role": "assistant", "content": answer})
    return token_ids, weights


def pack(examples: list[PreparedExample], config: ModelConfig) -> PackedExamples:
    """Put examples one after another."""
    token_ids, labels, weights, positions, bounds = [], [], [], [], [0]
    for example in examples:
        following = [*example.weights[1:], 0.0]
        token_ids += example.token_ids
        labels += [
            token if weight > 0 else IGNORED
            for token, weight in zip([*example.token_ids[1:], IGNORED], following, strict=True)
        ]
        weights += following
        positions += range(len(example.token_ids))
        bounds.append(len(token_ids))
    ids = torch.tensor(token_ids)
    return PackedExamples(
        patches=torch.cat([example.patches for example in examples]),
        tile_shapes=torch.tensor([shape for example in examples for shape in example.shapes], dtype=torch.int32),
        token_ids=ids,
        labels=torch.tensor(labels),
        weights=torch.tensor(weights),
        positions=torch.tensor(positions),
        bounds=torch.tensor(bounds, dtype=torch.int32),
        feature_rows=(ids == config.image_token_id).nonzero().flatten(),
        glyphs=torch.cat([example.glyphs for example in examples]),
        longest=max(len(example.token_ids) for example in examples),
    )

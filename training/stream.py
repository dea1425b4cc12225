"""Endless packed batches, drawn by worker processes from seeds: a run can go on where it stopped."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from glyphs import LABELLED, Glyph, glyph_labels, unlabelled
from network import PackedExamples
from torch.utils.data import IterableDataset, get_worker_info
from torchvision.transforms.v2 import functional as transforms

from foveate.evaluation.example import Example
from foveate.evaluation.skills import draw
from foveate.evaluation.splits import Split
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.pixels import cut, patchify
from foveate.models.lfm2_vl.processing import Processor
from foveate.models.lfm2_vl.tiles import plan_tiles
from foveate.vlm import question

IGNORED = -100


@dataclass(frozen=True)
class PreparedExample:
    """One example as numbers."""

    patches: torch.Tensor
    shapes: list[tuple[int, int]]
    token_ids: list[int]
    answer_from: int
    """Index of the first token of the answer."""
    glyphs: torch.Tensor
    """Labels of its image tokens (see `glyphs`)."""


class ExampleStream(IterableDataset[PackedExamples]):
    """Packed batches for one worker after another; `mixture` gives the weight of each skill."""

    def __init__(self, processor: Processor, mixture: Mapping[str, float], *, patch_rows: int, start: int) -> None:
        super().__init__()
        self._processor = processor
        self._skills, self._weights = list(mixture), list(mixture.values())
        self._patch_rows = patch_rows
        self._start = start

    def __iter__(self) -> Iterator[PackedExamples]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        torch.set_num_threads(1)
        seed = self._start + worker
        waiting: list[PreparedExample] = []
        rows = 0
        while True:
            choice = random.Random(seed)
            skill = choice.choices(self._skills, self._weights)[0]
            example = self._example(skill, seed)
            seed += workers
            if waiting and rows + example.patches.shape[0] > self._patch_rows:
                yield pack(waiting, self._processor.config)
                waiting, rows = [], 0
            waiting.append(example)
            rows += example.patches.shape[0]

    def _example(self, skill: str, seed: int) -> PreparedExample:
        if skill not in LABELLED:
            return prepare(draw(skill, seed, Split.TRAINING), self._processor)
        labelled = LABELLED[skill](random.Random(f"{skill} {seed}"))
        return prepare(labelled.example, self._processor, labelled.glyphs)


def prepare(example: Example, processor: Processor, glyphs: tuple[Glyph, ...] | None = None) -> PreparedExample:
    """Cut the pictures and encode question and answer; `glyphs` are the characters on its one picture, where known."""
    settings = processor.config.images
    grids = [plan_tiles(picture.width, picture.height, settings) for picture in example.pictures]
    patches = []
    for picture, grid in zip(example.pictures, grids, strict=True):
        pixels = transforms.pil_to_tensor(picture)
        patches += [patchify(tile, settings.patch_size) for tile in cut(pixels, grid, settings)]
    prompt = processor.prompts.encode([question(["" for _ in grids], example.question)], grids)
    answer = processor.prompts.tokenizer(example.answer, add_special_tokens=False)["input_ids"]
    end = next(iter(processor.config.stop_token_ids))
    shapes = [(tile.rows, tile.columns) for grid in grids for tile in grid.tiles]
    if glyphs is None:
        labels = unlabelled(sum(rows * columns for rows, columns in shapes) // 4)
    else:
        labels = glyph_labels(glyphs, *example.pictures[0].size, grids[0])
    return PreparedExample(torch.cat(patches), shapes, [*prompt, *answer, end], len(prompt), labels)


def pack(examples: list[PreparedExample], config: ModelConfig) -> PackedExamples:
    """Put examples one after another."""
    token_ids, labels, weights, positions, bounds = [], [], [], [], [0]
    for example in examples:
        ids = example.token_ids
        following = [*ids[1:], IGNORED]
        token_ids += ids
        labels += [token if index + 1 >= example.answer_from else IGNORED for index, token in enumerate(following)]
        weights += [(len(ids) - example.answer_from) ** -0.5] * len(ids)
        positions += range(len(ids))
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

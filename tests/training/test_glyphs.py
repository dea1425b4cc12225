"""The labels of image tokens name the characters that the encoder really has under them."""

from random import Random

import numpy as np
import pytest
import torch

from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.pixels import cut
from foveate.models.lfm2_vl.tiles import plan_tiles

SETTINGS = ImageSettings()


def labels_and_blocks(kind: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels of one picture's grid tokens, and the 32x32 pixels that each of them covers."""
    from glyphs import glyph_labels
    from lessons import LESSONS
    from torchvision.transforms.v2.functional import pil_to_tensor

    lesson = LESSONS[kind](Random(seed))
    assert lesson.glyphs
    picture = lesson.pictures[0]
    grid = plan_tiles(*picture.size, SETTINGS)
    labels = glyph_labels(lesson.glyphs, *picture.size, grid)
    tiles = cut(pil_to_tensor(picture), grid, SETTINGS)[: grid.rows * grid.columns]
    blocks = [tile.unfold(1, 32, 32).unfold(2, 32, 32).flatten(1, 2).movedim(0, 1) for tile in tiles]
    return labels, torch.cat(blocks)


@pytest.mark.parametrize("kind", ["read_lines", "read_page", "read_form"])
def test_blocks_with_characters_have_ink_and_blocks_without_have_far_less(kind: str) -> None:
    inked, empty = [], []
    for seed in range(6):
        labels, blocks = labels_and_blocks(kind, seed)
        contrast = blocks.float().flatten(1).std(1)
        grid_labels = labels[: len(blocks)]
        inked.append(contrast[grid_labels[:, 0] > 0])
        empty.append(contrast[grid_labels[:, 0] == 0])
    assert torch.cat(inked).median() > 2 * torch.cat(empty).median()
    assert np.quantile(torch.cat(inked).numpy(), 0.05) > torch.cat(empty).median()


def test_a_line_is_read_in_order_across_its_blocks() -> None:
    from glyphs import SYMBOLS, glyph_labels, glyphs_of

    from foveate.evaluation.drawing.grounds import Ground
    from foveate.evaluation.drawing.sheets import Sheet, Text
    from foveate.evaluation.splits import Split
    from foveate.evaluation.typefaces import typefaces

    paper = Ground((255, 255, 255), (255, 255, 255))
    texts = (Text("Receipt 42", 10, 40, 20), Text("total", 10, 104, 20))
    sheet = Sheet(256, 256, paper, (0, 0, 0), typefaces(Split.TRAINING)[0], texts)
    labels = glyph_labels(glyphs_of(sheet), 256, 256, plan_tiles(256, 256, SETTINGS))
    rows = labels.view(8, 8, -1)
    read = ["".join(SYMBOLS[value - 1] for value in row.flatten().tolist() if value > 0) for row in rows]
    assert read == ["", "Receipt42", "", "total", "", "", "", ""]


def test_a_page_is_labelled_tile_by_tile_and_its_thumbnail_is_not() -> None:
    from glyphs import UNLABELLED

    labels, blocks = labels_and_blocks("read_page", 1)
    assert len(labels) > len(blocks)
    assert (labels[len(blocks) :] == UNLABELLED).all()
    assert (labels[: len(blocks), 0] >= 0).all()


def test_the_colour_and_the_shape_of_a_figure_are_named_where_it_lies() -> None:
    from glyphs import SYMBOLS, figures_of, glyph_labels

    from foveate.evaluation.drawing.figures import SHAPES
    from foveate.evaluation.skills.shapes import choose_scene
    from foveate.evaluation.splits import Split

    for seed in range(5):
        scene = choose_scene(Random(seed), Split.TRAINING)
        grid = plan_tiles(scene.width, scene.height, SETTINGS)
        rows, columns = grid.tile.rows // 2, grid.tile.columns // 2
        labels = glyph_labels(figures_of(scene), scene.width, scene.height, grid).view(rows, columns, -1)
        assert len(scene.figures) <= int((labels[..., 0] > 0).sum()) < rows * columns
        for figure in scene.figures:
            column, row = int(figure.centre[0] / scene.width * columns), int(figure.centre[1] / scene.height * rows)
            named = [SYMBOLS[value - 1] for value in labels[row, column].tolist() if value > 0]
            assert figure.kind.colour in named
            assert figure.kind.shape in named
            assert set(named) & set(SHAPES)


def test_a_stretched_lesson_has_its_characters_where_they_are_now() -> None:
    from glyphs import glyph_labels
    from lessons import LESSONS, stretched
    from torchvision.transforms.v2.functional import pil_to_tensor

    inked, empty = [], []
    for seed in range(6):
        lesson = stretched(Random(seed), LESSONS["read_lines"](Random(seed)))
        assert lesson.glyphs
        (picture,) = lesson.pictures
        grid = plan_tiles(*picture.size, SETTINGS)
        labels = glyph_labels(lesson.glyphs, *picture.size, grid)
        (tile,) = cut(pil_to_tensor(picture), grid, SETTINGS)
        blocks = tile.unfold(1, 32, 32).unfold(2, 32, 32).flatten(1, 2).movedim(0, 1)
        contrast = blocks.float().flatten(1).std(1)
        inked.append(contrast[labels[:, 0] > 0])
        empty.append(contrast[labels[:, 0] == 0])
    assert torch.cat(inked).median() > 2 * torch.cat(empty).median()

"""Tiles, pixels and image tokens equal the reference's, bit for bit, for pictures of every size."""

from collections.abc import Callable

import pytest
import torch
from transformers import BatchFeature

from foveate.errors import ImageSizeError
from foveate.models.lfm2_vl.processing import Prompt
from tests.parity.pictures import SIZES, picture, random_sizes, shown, user
from tests.parity.reference import Pair, patches_in

# One checkpoint for each set of image settings: the class's own, no thumbnail, bicubic with grids of a single tile.
SETTINGS = ("LFM2.5-VL-1.6B", "LFM2-VL-450M", "LFM2.5-VL-3B")
MOST_TILE_TOKENS = 256


def tile_tokens(inputs: BatchFeature) -> list[int]:
    """The rows that the encoder makes of each tile of the reference."""
    return [rows * columns // 4 for rows, columns in inputs["spatial_shapes"].tolist()]


def assert_same_tiles(prompt: Prompt, inputs: BatchFeature, size: tuple[int, int]) -> None:
    shapes = [[tile.rows, tile.columns] for image in prompt.images for tile in image.tiles]
    assert shapes == inputs["spatial_shapes"].tolist(), size
    assert torch.equal(torch.cat([image.patches for image in prompt.images]), patches_in(inputs)), size


def size_id(size: tuple[int, int]) -> str:
    return "{}x{}".format(*size)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("size", SIZES, ids=size_id)
def test_a_picture_is_cut_and_its_prompt_written_as_by_the_reference(
    pair_of: Callable[[str], Pair], name: str, size: tuple[int, int]
):
    """The prompt's markers hold the tile rows and columns, so equal token ids mean equal grids."""
    pair, messages = pair_of(name), [user(shown(picture(*size)), "What is this?")]
    prompt, inputs = pair.prompt(messages), pair.inputs(messages)
    assert_same_tiles(prompt, inputs, size)
    assert prompt.token_ids == inputs["input_ids"][0].tolist()


@pytest.mark.parametrize("size", SIZES, ids=size_id)
def test_a_picture_takes_as_many_image_tokens_as_the_public_checkpoints_give_it(
    pair_of: Callable[[str], Pair], size: tuple[int, int]
):
    pair = pair_of("LFM2.5-VL-1.6B")
    prompt = pair.prompt([user(shown(picture(*size)))])
    assert prompt.token_ids.count(pair.vlm.model.config.image_token_id) == SIZES[size]


@pytest.mark.parametrize("name", SETTINGS)
def test_pictures_of_300_random_sizes_are_cut_and_their_prompts_written_as_by_the_reference(
    pair_of: Callable[[str], Pair], name: str
):
    """Where the reference breaks its bound on a tile's tokens, Foveate refuses; where it miscounts, Foveate counts."""
    pair = pair_of(name)
    config = pair.vlm.model.config
    num_refused = num_miscounted = 0
    for size in random_sizes(300):
        messages = [user(shown(picture(*size)), "What is this?")]
        inputs = pair.inputs(messages)
        if max(tile_tokens(inputs)) > MOST_TILE_TOKENS:
            num_refused += 1
            with pytest.raises(ImageSizeError, match="too thin"):
                pair.prompt(messages)
            continue
        prompt = pair.prompt(messages)
        assert_same_tiles(prompt, inputs, size)
        assert prompt.token_ids.count(config.image_token_id) == sum(tile_tokens(inputs)), size
        expected = inputs["input_ids"][0].tolist()
        if expected.count(config.image_token_id) != sum(tile_tokens(inputs)):
            num_miscounted += 1
        else:
            assert prompt.token_ids == expected, size
    assert num_refused <= 3
    assert num_miscounted <= (6 if config.images.min_tiles == 1 else 0)


@pytest.mark.parametrize("name", SETTINGS)
def test_several_pictures_in_one_call_are_cut_as_each_alone(pair_of: Callable[[str], Pair], name: str):
    """The reference groups pictures of one size; the order of tiles must survive it."""
    pair = pair_of(name)
    sizes = [(300, 200), (1376, 768), (300, 200), (64, 64), (1376, 768)]
    messages = [user(*(shown(picture(*size, seed)) for seed, size in enumerate(sizes)), "Compare them.")]
    prompt, inputs = pair.prompt(messages), pair.inputs(messages)
    assert_same_tiles(prompt, inputs, sizes[0])
    assert prompt.token_ids == inputs["input_ids"][0].tolist()

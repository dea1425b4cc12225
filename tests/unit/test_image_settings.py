"""A checkpoint's own processor files decide how pictures are cut, then its config.json, then the defaults."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from foveate.errors import CheckpointError
from foveate.models.lfm2_vl.image_settings import ImageSettings, read_image_settings


def settings_of(folder: Path, config: dict[str, Any], **files: dict[str, Any]) -> ImageSettings:
    """Read the settings of a folder with these files, by name without their endings."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return read_image_settings(folder, config)


def test_what_no_file_says_is_the_reference_s_default(tmp_path: Path):
    assert settings_of(tmp_path, {}, processor_config={}) == ImageSettings()


def test_a_folder_without_any_processor_file_is_not_guessed_at(tmp_path: Path):
    with pytest.raises(CheckpointError, match="it is not complete"):
        settings_of(tmp_path, {})


def test_the_settings_nested_in_the_processor_file_come_first(tmp_path: Path):
    """Then the ones flat in it, then the preprocessor file, then the model's configuration."""
    layers = {
        "config": {"max_tiles": 9, "min_tiles": 3, "tile_size": 256, "use_thumbnail": False, "min_image_tokens": 32},
        "preprocessor": {"max_tiles": 8, "min_tiles": 4, "tile_size": 1024, "use_thumbnail": True},
        "flat": {"max_tiles": 7, "min_tiles": 5, "tile_size": 64},
        "nested": {"max_tiles": 6, "min_tiles": 6},
    }
    settings = settings_of(
        tmp_path,
        layers["config"],
        preprocessor_config=layers["preprocessor"],
        processor_config={**layers["flat"], "image_processor": layers["nested"]},
    )
    assert (settings.max_tiles, settings.min_tiles) == (6, 6)
    assert settings.tile_size == 64
    assert settings.use_thumbnail is True
    assert settings.min_image_tokens == 32


def test_a_null_says_nothing(tmp_path: Path):
    settings = settings_of(tmp_path, {"max_tiles": 5}, processor_config={"image_processor": {"max_tiles": None}})
    assert settings.max_tiles == 5


def test_an_image_processor_of_null_is_none(tmp_path: Path):
    assert settings_of(tmp_path, {}, processor_config={"image_processor": None, "max_tiles": 4}).max_tiles == 4


def test_the_patch_size_goes_by_its_name_in_the_files(tmp_path: Path):
    """The vision encoder of the first checkpoints has a `patch_size` of its own in the preprocessor file."""
    settings = settings_of(
        tmp_path, {}, preprocessor_config={"patch_size": 14}, processor_config={"encoder_patch_size": 8}
    )
    assert settings.patch_size == 8


def test_splitting_switched_off_leaves_one_tile(tmp_path: Path):
    settings = settings_of(tmp_path, {}, processor_config={"image_processor": {"do_image_splitting": False}})
    assert settings.tile_bounds == (1, 1)
    assert settings.longest_tile_patches == 1024
    assert ImageSettings(do_image_splitting=False, max_image_tokens=64).longest_tile_patches == 256


BAD = [
    ({"tile_size": 500}, "tile_size is 500; it must be a multiple of 32 pixels"),
    ({"tile_size": 0}, "tile_size is 0; it must be above 0"),
    ({"tile_size": "512"}, "tile_size is '512'"),
    ({"downsample_factor": 0}, "downsample_factor is 0; it must be above 0"),
    ({"encoder_patch_size": -16}, "patch_size is -16; it must be above 0"),
    ({"min_tiles": 0}, "min_tiles is 0, max_tiles 10"),
    ({"min_tiles": 11}, "min_tiles is 11, max_tiles 10"),
    ({"min_tiles": 2.0}, "min_tiles is 2.0"),
    ({"min_image_tokens": 0}, "min_image_tokens is 0"),
    ({"max_image_tokens": 63}, "min_image_tokens is 64, max_image_tokens 63"),
    ({"use_thumbnail": "yes"}, "use_thumbnail is 'yes'"),
    ({"use_thumbnail": 1}, "use_thumbnail is 1"),
    ({"max_pixels_tolerance": 0}, "max_pixels_tolerance is 0; it must be above 0"),
    ({"max_pixels_tolerance": math.inf}, "max_pixels_tolerance is inf"),
    ({"rescale_factor": 0.0}, "rescale_factor is 0.0; it must be above 0"),
    ({"image_mean": [0.5]}, "image_mean is (0.5,)"),
    ({"image_mean": 0.5}, "image_mean is 0.5"),
    ({"image_std": [0.5, 0.5, 0]}, "image_std is (0.5, 0.5, 0); it must be above 0"),
    ({"resample": 1}, "resample is 1; Foveate resizes with 0 nearest, 2 bilinear or 3 bicubic"),
]


@pytest.mark.parametrize(("nested", "expected"), BAD, ids=[str(nested) for nested, _ in BAD])
def test_a_value_that_cannot_be_used_is_refused_with_its_name_and_bound(
    tmp_path: Path, nested: dict[str, Any], expected: str
):
    with pytest.raises(CheckpointError) as caught:
        settings_of(tmp_path, {}, processor_config={"image_processor": nested})
    assert expected in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("section", ["x", 3, ["max_tiles"], True])
def test_an_image_processor_that_is_no_object_is_refused(tmp_path: Path, section: object):
    with pytest.raises(CheckpointError, match="image_processor"):
        settings_of(tmp_path, {}, processor_config={"image_processor": section})

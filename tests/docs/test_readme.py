"""What the README shows is what there is."""

import re
from pathlib import Path

import foveate
from foveate.images import load_image
from foveate.loading import DEMO_MODEL
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.tiles import plan_tiles


def demo_lines(project: Path) -> list[str]:
    """The lines that the README says `make demo` ends with."""
    shown = re.search(r"The last lines of `make demo`:\n\n```text\n(.*?)```", (project / "README.md").read_text(), re.S)
    assert shown is not None
    return shown[1].splitlines()


def test_a_result_is_shown_by_line_30(project):
    lines = (project / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines.index(demo_lines(project)[-1]) < 30


def test_make_demo_runs_the_script_whose_lines_the_readme_shows(project):
    """`tests/evaluation/test_demo_answers.py` compares the lines with what the script prints."""
    assert "\ndemo: $(VENV)/.installed\n\t$(BIN)/python examples/demo.py\n" in (project / "Makefile").read_text()


def test_the_example_picture_has_the_image_tokens_that_the_drawing_of_a_request_says(project):
    settings = read_model_config(DEMO_MODEL).images
    picture = load_image(project / "examples" / "pictures" / "galaxies.jpg")
    grid = plan_tiles(picture.width, picture.height, settings)
    tokens = sum(tile.num_tokens(settings.downsample_factor) for tile in grid.tiles)
    patches = sum(tile.num_patches for tile in grid.tiles)
    assert (len(grid.tiles), tokens, patches) == (5, 1262, 5048)
    drawing = (project / "docs" / "pictures" / "life-of-a-request.svg").read_text()
    assert all(figure in drawing for figure in ("1000 x 872", "thumbnail of 952", "5048 patches", "1262 places"))


def test_every_public_name_is_there():
    assert all(hasattr(foveate, name) for name in foveate.__all__)
    assert len(set(foveate.__all__)) == len(foveate.__all__)

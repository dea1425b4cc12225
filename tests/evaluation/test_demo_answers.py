"""`make demo` prints true answers: they are compared with what was drawn."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import ImageChops

from foveate.images import load_image

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The scripts `demo` and `draw_pictures`, which are plain files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        import demo
        import draw_pictures

        yield demo, draw_pictures
    del sys.modules["demo"], sys.modules["draw_pictures"]


@pytest.fixture(scope="module")
def true_answers(scripts: tuple[ModuleType, ModuleType]) -> dict[tuple[str, str], str]:
    """What is so by construction, by picture and question."""
    drawn = scripts[1]
    scene, receipt, page = drawn.scene(), drawn.receipt(), drawn.page()
    colours = {figure.kind.shape: figure.kind.colour for figure in scene.figures}
    places = {figure.cell: figure.kind.phrase for figure in scene.figures}
    first_lines = {section.heading: section.lines[0] for section in page.sections}
    return {
        ("scene.png", "What colour is the star?"): colours["star"],
        ("scene.png", "What is in the middle of the picture?"): places[1, 1],
        ("receipt.png", "What is the name of the shop?"): receipt.value("name of the shop"),
        ("receipt.png", "What is the total?"): receipt.value("total"),
        ("page.png", "What is the title of this page?"): page.title,
        ("page.png", "What is written under the heading Resigned?"): first_lines["Resigned"],
    }


def printed_lines(answers: dict[tuple[str, str], str]) -> list[str]:
    """What the demo prints when it gives these answers."""
    lines: list[str] = []
    for (name, question), answer in answers.items():
        heading = f"examples/pictures/{name}"
        lines += [heading] if heading not in lines else []
        lines.append(f"  {question} {answer}")
    return lines


def test_the_demo_prints_every_question_with_its_true_answer(scripts, true_answers, capsys):
    scripts[0].main()
    assert capsys.readouterr().out.splitlines() == printed_lines(true_answers)


def test_the_readme_shows_the_true_answers(true_answers):
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert "\n".join(printed_lines(true_answers)) in readme


@pytest.mark.parametrize("name", ["scene.png", "receipt.png", "page.png"])
def test_the_committed_pictures_are_those_that_the_script_draws(scripts, name):
    """Another version of Pillow or of a font may move a few levels at the edges of letters."""
    drawn, committed = scripts[1].pictures()[name], load_image(EXAMPLES / "pictures" / name)
    assert drawn.size == committed.size
    assert np.asarray(ImageChops.difference(drawn, committed)).mean() < 0.5

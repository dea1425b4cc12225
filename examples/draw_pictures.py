"""Draw the pictures that `examples/demo.py` asks about: a scene, a receipt and a page.

    pip install '.[eval]'
    python examples/draw_pictures.py

They come from the code that draws the test questions, on the side of the tests: the model that ships with Foveate has
learned from other words, fonts and coloured shapes.
"""

from pathlib import Path
from random import Random

from PIL import Image

from foveate.evaluation import Split
from foveate.evaluation.drawing.forms import Form, choose_form
from foveate.evaluation.drawing.pages import Page, choose_page
from foveate.evaluation.drawing.scenes import Scene, compatible_kinds, paint_scene, scatter
from foveate.evaluation.drawing.sheets import paint_sheet

FOLDER = Path(__file__).parent / "pictures"


def scene() -> Scene:
    """Return four coloured shapes on a striped ground."""
    random = Random("scene 11")
    return scatter(random, random.sample(compatible_kinds(random, Split.TEST), 4))


def receipt() -> Form:
    """Return a receipt with four items."""
    return choose_form(Random("receipt 22"), Split.TEST)


def page() -> Page:
    """Return a page with headings and short lines."""
    return choose_page(Random("page 61"), Split.TEST)


def pictures() -> dict[str, Image.Image]:
    """Return each picture by the name of its file."""
    return {
        "scene.png": paint_scene(Random("ground 0"), Split.TEST, scene()),
        "receipt.png": paint_sheet(receipt().sheet),
        "page.png": paint_sheet(page().sheet),
    }


def main() -> None:
    """Write the files."""
    for name, picture in pictures().items():
        picture.save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    main()

"""Descriptions: one true sentence about the picture.

Answers: a sentence with its full stop, such as "A red circle, a blue star and a green square." (from the top left, row
by row), "A receipt from Harbor Market with a total of $12.40.", "A page of text with the title Vine." or "The printed
word harbor."
"""

from random import Random
from typing import Final

from PIL import Image

from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.handwriting import choose_handwriting, paint_handwriting
from foveate.evaluation.drawing.lettering import choose_lettering, paint_lettering
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.scenes import compatible_kinds, paint_scene, scatter
from foveate.evaluation.drawing.sheets import paint_sheet
from foveate.evaluation.drawing.wording import PRINTED
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import listed, with_article, worded
from foveate.evaluation.skills.digits import some_number
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "draw"]

WORDINGS: Final = {
    "describe": (
        "Describe this picture.",
        "Describe the picture in one sentence.",
        "What does this picture show?",
        "What is in this picture?",
        "What do you see?",
        "Describe this image.",
    ),
}


def draw(random: Random, split: Split) -> Example:
    """Return a picture of any kind with a short description; two in five show coloured shapes."""
    describe = random.choice((*(_scene,) * 4, *(_form,) * 2, _page, _printed, _printed, _handwritten))
    return describe(random, split, worded(random, WORDINGS["describe"]))


def _scene(random: Random, split: Split, question: str) -> Example:
    scene = scatter(random, random.sample(compatible_kinds(random, split), random.randint(1, 4)))
    figures = sorted(scene.figures, key=lambda figure: (figure.cell[1], figure.cell[0]))
    sentence = listed([figure.kind.phrase for figure in figures])
    return _described(paint_scene(random, split, scene), question, sentence)


def _form(random: Random, split: Split, question: str) -> Example:
    form = choose_form(random, split)
    if form.document == "form":
        sentence = f"a form with the title {form.heading}"
    else:
        sentence = f"{with_article(form.document)} from {form.heading} with a total of {form.value('total')}"
    return _described(paint_sheet(form.sheet), question, sentence)


def _page(random: Random, split: Split, question: str) -> Example:
    page = choose_page(random, split)
    return _described(paint_sheet(page.sheet), question, f"a page of text with the title {page.title}")


def _printed(random: Random, split: Split, question: str) -> Example:
    printed = random.choice(list(PRINTED))
    text = PRINTED[printed](random, split)
    image = paint_lettering(random, split, choose_lettering(random, split, text))
    return _described(image, question, f"the printed {'words' if printed == 'phrase' else printed} {text}")


def _handwritten(random: Random, split: Split, question: str) -> Example:
    text = some_number(random, random.randint(1, 3))
    image = paint_handwriting(random, split, choose_handwriting(random, split, text))
    return _described(image, question, f"the handwritten {'digit' if len(text) == 1 else 'number'} {text}")


def _described(image: Image.Image, question: str, sentence: str) -> Example:
    return Example("describe", (image,), question, f"{sentence[0].upper()}{sentence[1:]}.")

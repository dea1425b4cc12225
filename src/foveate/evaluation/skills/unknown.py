"""Questions that the picture does not answer: about the world, or about a thing that is not in this picture.

Answers: always "I don't know."
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.colours import COLOURS
from foveate.evaluation.drawing.fields import LABELS
from foveate.evaluation.drawing.figures import ALIKE, SHAPES
from foveate.evaluation.drawing.forms import Form, choose_form
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.scenes import compatible_kinds, kinds, paint_scene, scatter
from foveate.evaluation.drawing.sheets import paint_sheet
from foveate.evaluation.drawing.wording import some_words
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.skills import counting, digits, forms, pages, pairs, printed_text, relations, shapes
from foveate.evaluation.splits import Split
from foveate.evaluation.topics import world_question

__all__ = ["ANSWER", "draw"]

ANSWER: Final = "I don't know."

_PICTURED: Final = (
    *(shapes.draw, printed_text.draw) * 4,
    *(counting.draw, relations.draw, digits.draw, forms.draw) * 2,
    pages.draw,
    pairs.draw,
)
"""Whose pictures questions about the world are asked of."""


def draw(random: Random, split: Split) -> Example:
    """Return a question without an answer: one in three is about a thing that could be in the picture, but is not."""
    ask = random.choice((_ask_world, _ask_world, _ask_world, _ask_world, _ask_scene, _ask_sheet))
    return ask(random, split)


def _ask_world(random: Random, split: Split) -> Example:
    pictures = random.choice(_PICTURED)(random, split).pictures
    return Example("unknown", pictures, world_question(random, split), ANSWER)


def _ask_scene(random: Random, split: Split) -> Example:
    """Return a question about a shape, a colour or a coloured shape that none of the figures has."""
    chosen = random.sample(compatible_kinds(random, split), random.randint(1, 4))
    image = paint_scene(random, split, scatter(random, chosen))
    shown = {kind.shape for kind in chosen}
    absent_shapes = [shape for shape in SHAPES if shape not in shown | (ALIKE if shown & ALIKE else frozenset())]
    absent_colours = sorted(COLOURS.keys() - {kind.colour for kind in chosen})
    absent_kinds = [kind for kind in kinds(split) if kind.shape in absent_shapes]
    asked, wordings = random.choice(("colour", "shape", "where")), shapes.WORDINGS
    question = {
        "colour": worded(random, wordings["colour"], shape=random.choice(absent_shapes)),
        "shape": worded(random, wordings["shape"], colour=random.choice(absent_colours)),
        "where": worded(random, wordings["where"], name=random.choice(absent_kinds).name),
    }[asked]
    return Example("unknown", (image,), question, ANSWER)


def _ask_sheet(random: Random, split: Split) -> Example:
    """Return a question about a heading, a field or an item that is not on the page or form."""
    if random.random() < 0.25:
        page = choose_page(random, split)
        printed = set(" ".join(text.text for text in page.sheet.texts).lower().split())
        absent = next(word for word in some_words(random, split, len(printed) + 1) if word not in printed)
        asked, slot = random.choice((("under", "heading"), ("last_word", "word"), ("rest", "word")))
        question = worded(random, pages.WORDINGS[asked], **{slot: absent.title() if slot == "heading" else absent})
        return Example("unknown", (paint_sheet(page.sheet),), question, ANSWER)
    form = choose_form(random, split)
    image = paint_sheet(form.sheet)
    nouns = _absent_nouns(form)
    if form.document == "receipt" and (not nouns or random.random() < 0.3):
        bought = {item.name.lower() for item in form.items}
        absent = next(word for word in some_words(random, split, len(bought) + 1) if word not in bought)
        return Example("unknown", (image,), worded(random, forms.WORDINGS["price"], item=absent), ANSWER)
    question = worded(random, forms.WORDINGS["field"], noun=random.choice(nouns), document=form.document)
    return Example("unknown", (image,), question, ANSWER)


def _absent_nouns(form: Form) -> list[str]:
    """Return the fields of other forms that have no word in common with a field of this one, nor ask for money."""
    present = {word for field in form.fields for word in field.noun.split()} - {"of", "the"}
    present |= {"company"} if "shop" in present else set()
    money = {"amount", "subtotal", "discount", "tax", "total", "change"}
    return [noun for noun in LABELS if present.isdisjoint(noun.split()) and money.isdisjoint(noun.split())]

"""Receipts, invoices and forms: one of many fields has to be found.

Answers: the value as it is printed, such as "$12.40", "14 March 2024" or "Harbor Market"; quantities in digits.
"""

from random import Random
from typing import Final

from foveate.evaluation.drawing.forms import Form, choose_form
from foveate.evaluation.drawing.sheets import paint_sheet
from foveate.evaluation.example import Example
from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["WORDINGS", "ask_about", "draw"]

WORDINGS: Final = {
    "field": (
        "What is the {noun}?",
        "What is the {noun} on this {document}?",
        "Find the {noun}.",
        "Read the {noun}.",
        "Look at the {document}. What is the {noun}?",
    ),
    "amount": (
        "What is the {noun}?",
        "How much is the {noun}?",
        "What is the {noun} on this {document}?",
        "Find the {noun}.",
    ),
    "price": (
        "How much is the {item}?",
        "What does the {item} cost?",
        "What is the price of the {item}?",
        "Find the price of the {item}.",
    ),
    "price_of_all": (
        "What is the amount for the {item}?",
        "How much has to be paid for the {item}?",
        "What amount stands beside the {item}?",
        "Find the amount for the {item}.",
    ),
    "quantity": (
        "What is the quantity of the {item}?",
        "What quantity is given for the {item}?",
        "Find the quantity of the {item}.",
        "How many of the {item} are on the {document}?",
    ),
}


def draw(random: Random, split: Split) -> Example:
    """Return a question about one field of a document with six fields or more."""
    form = choose_form(random, split)
    question, answer = ask_about(random, form)
    return Example("forms", (paint_sheet(form.sheet),), question, answer)


def ask_about(random: Random, form: Form) -> tuple[str, str]:
    """Return a question about a form, with its answer."""
    if form.items and random.random() < 0.25:
        item, has_quantities = random.choice(form.items), form.document == "invoice"
        asked = random.choice(("price_of_all", "quantity")) if has_quantities else "price"
        question = worded(random, WORDINGS[asked], item=item.name, document=form.document)
        return question, str(item.quantity) if asked == "quantity" else item.price
    field = random.choice(form.fields)
    wordings = WORDINGS["amount" if field.is_amount else "field"]
    return worded(random, wordings, noun=field.noun, document=form.document), field.value

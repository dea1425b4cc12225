"""Receipts, invoices and filled-in forms: at least six fields, each with a label of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from foveate.evaluation.drawing.fields import LABELS, VALUES, Field, Item, address, business, some_items, sums
from foveate.evaluation.drawing.rows import Row, set_rows
from foveate.evaluation.drawing.sheets import Sheet
from foveate.evaluation.drawing.wording import date, person, phone, time_of_day
from foveate.evaluation.splits import Split

__all__ = ["Form", "choose_form"]

_TITLES: Final = (
    "Registration",
    "Membership",
    "Delivery note",
    "Library account",
    "Visitor pass",
    "Job application",
    "Repair request",
    "Booking",
)


@dataclass(frozen=True)
class Form:
    """A receipt, an invoice or a form, and what stands on it."""

    sheet: Sheet
    document: str
    """What a sentence calls it: "receipt", "invoice" or "form"."""
    heading: str
    """The shop on a receipt or an invoice, the title of a form."""
    fields: tuple[Field, ...]
    items: tuple[Item, ...] = ()

    def value(self, noun: str) -> str:
        """Return the value of the field that questions call `noun`; KeyError where there is none."""
        return {field.noun: field.value for field in self.fields}[noun]


def choose_form(random: Random, split: Split) -> Form:
    """Return a document of 512x512 to 1000x1400 pixels with six fields or more."""
    return random.choice((_receipt, _invoice, _filled_in))(random, split)


def _receipt(random: Random, split: Split) -> Form:
    shop, items = business(random, split), some_items(random, split, random.randint(2, 6))
    contact = [Field("address", address(random, split)), Field("phone number", phone(random, split))]
    about = [
        Field("date", date(random, split)),
        Field("time", time_of_day(random, split)),
        Field("receipt number", str(random.randrange(1_000, 100_000))),
        Field("name of the cashier", person(random, split)),
    ]
    about = about[: random.randint(2, 4)]
    random.shuffle(about)
    money = sums(random, items, in_cash=random.random() < 0.5)
    rows = [
        Row(shop, bold=True, large=True, centred=True),
        *(Row(field.value, centred=True) for field in contact),
        *_labelled(random, about, ruled_last=True),
        *(Row(item.name, item.price, ruled=item is items[-1]) for item in items),
        *_labelled(random, money),
    ]
    fields = (Field("name of the shop", shop), *contact, *about, *money)
    return Form(set_rows(random, split, rows, flush_right=True), "receipt", shop, fields, items)


def _invoice(random: Random, split: Split) -> Form:
    shop, items = business(random, split), some_items(random, split, random.randint(2, 5), most=9)
    about = [
        Field("invoice number", f"{random.randint(2015, 2030)}-{random.randrange(1000):03}"),
        Field("date", date(random, split)),
        Field("due date", date(random, split)),
        Field("name of the customer", person(random, split)),
    ]
    money = sums(random, items, discounted=random.random() < 0.4)
    rows = [
        Row("INVOICE", bold=True, large=True),
        Row(shop, bold=True, ruled=True),
        *_labelled(random, about, ruled_last=True),
        Row("Item", "Amount", "Qty", bold=True),
        *(Row(item.name, item.price, str(item.quantity), ruled=item is items[-1]) for item in items),
        *_labelled(random, money),
    ]
    fields = (Field("name of the shop", shop), *about, *money)
    return Form(set_rows(random, split, rows, flush_right=True), "invoice", shop, fields, items)


def _filled_in(random: Random, split: Split) -> Form:
    title = random.choice(_TITLES)
    chosen = set(random.sample(list(VALUES), random.randint(6, 10)))
    fields = [Field(noun, make(random, split)) for noun, make in VALUES.items() if noun in chosen]
    rows = [
        Row(title, bold=True, large=True, centred=random.random() < 0.5, ruled=True),
        *_labelled(random, fields, ruled=random.random() < 0.4),
    ]
    return Form(set_rows(random, split, rows, flush_right=False), "form", title, tuple(fields))


def _labelled(random: Random, fields: Iterable[Field], *, ruled: bool = False, ruled_last: bool = False) -> list[Row]:
    """Return a row for each field; the total is bold."""
    fields, ending = list(fields), random.choice((":", ""))
    return [
        Row(
            random.choice(LABELS[field.noun]) + ending,
            field.value,
            bold=field.noun == "total",
            ruled=ruled or (ruled_last and field is fields[-1]),
        )
        for field in fields
    ]

"""What stands in the fields of receipts, invoices and forms, and the labels that are printed before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from foveate.evaluation.drawing.wording import amount, date, letter_code, person, phone, price, some_words
from foveate.evaluation.splits import Split

__all__ = ["LABELS", "VALUES", "Field", "Item", "address", "business", "some_items", "sums"]

Make = Callable[[Random, Split], str]


@dataclass(frozen=True)
class Field:
    """A value on a form."""

    noun: str
    """What a question calls it, such as "phone number"; no two fields of a form share it."""
    value: str
    """As it is printed."""
    is_amount: bool = False
    """Whether it is an amount of money."""


@dataclass(frozen=True)
class Item:
    """Something bought."""

    name: str
    quantity: int
    cents: int
    """What all of them cost."""

    @property
    def price(self) -> str:
        """The cost as it is printed."""
        return amount(self.cents)


def business(random: Random, split: Split) -> str:
    """Return the name of a shop or a company."""
    ending = random.choice(("", "", " Market", " Cafe", " Store", " Bakery", " Garden"))
    return " ".join(some_words(random, split, 2 if not ending else 1)).title() + ending


def address(random: Random, split: Split) -> str:
    """Return a street with a house number."""
    return f"{random.randint(1, 299)} {_capitalized(random, split)} {random.choice(('Street', 'Road', 'Lane'))}"


def some_items(random: Random, split: Split, count: int, most: int = 1) -> tuple[Item, ...]:
    """Return `count` items, of each at most `most`."""
    capitalized = random.random() < 0.5
    names = some_words(random, split, count)
    quantities = [random.randint(1, most) for _ in names]
    return tuple(
        Item(name.capitalize() if capitalized else name, quantity, quantity * random.randint(50, 4_000))
        for name, quantity in zip(names, quantities, strict=True)
    )


def sums(random: Random, items: Sequence[Item], *, discounted: bool = False, in_cash: bool = False) -> list[Field]:
    """Return the subtotal, the tax and the total of the items, and what is taken off or paid in cash. They add up."""
    subtotal = sum(item.cents for item in items)
    discount = subtotal * random.choice((5, 10, 15)) // 100 if discounted else 0
    tax = (subtotal - discount) * random.choice((5, 7, 8, 10, 19, 20)) // 100
    total = subtotal - discount + tax
    note = random.choice((500, 1_000, 2_000))
    paid = -(-total // note) * note
    cents = {"subtotal": subtotal}
    cents |= {"discount": discount} if discounted else {}
    cents |= {"tax": tax, "total": total}
    cents |= {"amount paid in cash": paid, "change": paid - total} if in_cash else {}
    return [Field(noun, amount(value), is_amount=True) for noun, value in cents.items()]


def _email(random: Random, split: Split) -> str:
    user, host = some_words(random, split, 2)
    return f"{user}@{host}.{random.choice(('com', 'org', 'net'))}"


def _capitalized(random: Random, split: Split) -> str:
    return some_words(random, split, 1)[0].title()


def _digits(least: int, most: int) -> Make:
    return lambda random, _split: str(random.randint(least, most))


VALUES: Final[dict[str, Make]] = {
    "name": person,
    "date of birth": date,
    "address": address,
    "city": _capitalized,
    "phone number": phone,
    "email address": _email,
    "company": business,
    "department": _capitalized,
    "customer number": _digits(10_000, 999_999),
    "order number": _digits(1_000, 99_999),
    "code": letter_code,
    "room number": _digits(1, 999),
    "arrival date": date,
    "departure date": date,
    "amount": price,
    "date": date,
}
"""The fields of forms by their nouns, in the order in which a form has them, and what draws their values."""

LABELS: Final[dict[str, tuple[str, ...]]] = {
    "name": ("Name", "Full name"),
    "date of birth": ("Date of birth", "Born on"),
    "address": ("Address", "Street address"),
    "city": ("City",),
    "phone number": ("Phone", "Phone number", "Tel."),
    "email address": ("Email", "Email address"),
    "company": ("Company",),
    "department": ("Department",),
    "customer number": ("Customer number", "Customer no."),
    "order number": ("Order number", "Order no."),
    "code": ("Code",),
    "room number": ("Room", "Room number"),
    "arrival date": ("Arrival", "Arrival date"),
    "departure date": ("Departure", "Departure date"),
    "amount": ("Amount",),
    "date": ("Date",),
    "time": ("Time",),
    "receipt number": ("Receipt no.", "Receipt"),
    "name of the cashier": ("Cashier", "Served by"),
    "invoice number": ("Invoice no.", "Invoice number"),
    "due date": ("Due date", "Due"),
    "name of the customer": ("Customer", "Bill to"),
    "subtotal": ("Subtotal", "Sub total"),
    "discount": ("Discount",),
    "tax": ("Tax", "Sales tax"),
    "total": ("Total", "TOTAL"),
    "amount paid in cash": ("Cash", "Paid in cash"),
    "change": ("Change",),
}
"""How each noun may be printed."""

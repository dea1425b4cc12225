"""The texts that are printed: words, phrases, numbers, dates, times, prices."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Final

from foveate.evaluation.resources import made_up_words, words
from foveate.evaluation.splits import Split

__all__ = [
    "PRINTED",
    "amount",
    "date",
    "letter_code",
    "number",
    "person",
    "phone",
    "phrase",
    "price",
    "some_words",
    "time_of_day",
    "vocabulary",
    "word",
]

_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_LETTERS: Final = "ABCDEFGHKLMNPRSTUVWXYZ"
"""Without those that look like a digit or like each other."""


@cache
def vocabulary(split: Split) -> tuple[str, ...]:
    """Return the words that are printed: English ones, and for training many more that are made up."""
    return words(split) if split is Split.TEST else (*words(split), *made_up_words())


def some_words(random: Random, split: Split, count: int) -> list[str]:
    """Return `count` different words in small letters."""
    return random.sample(vocabulary(split), count)


def word(random: Random, split: Split) -> str:
    """Return a word: in small letters, with a capital, or all in capitals."""
    return _cased(random, random.choice(vocabulary(split)))


def phrase(random: Random, split: Split) -> str:
    """Return two or three words."""
    return _cased(random, " ".join(some_words(random, split, random.randint(2, 3))))


def person(random: Random, split: Split) -> str:
    """Return a first and a last name: words with capitals."""
    return " ".join(some_words(random, split, 2)).title()


def number(random: Random, _split: Split) -> str:
    """Return a whole number of two to six digits; from 1,000 on some have commas."""
    digits = random.randint(2, 6)
    value = random.randrange(10 ** (digits - 1), 10**digits)
    return f"{value:,}" if random.random() < 0.3 else str(value)


def date(random: Random, _split: Split) -> str:
    """Return a date in one of four usual forms."""
    year, month, day = random.randint(1990, 2039), random.randint(1, 12), random.randint(1, 28)
    name = _MONTHS[month - 1]
    return random.choice(
        (
            f"{year}-{month:02}-{day:02}",
            f"{month:02}/{day:02}/{year}",
            f"{day} {name} {year}",
            f"{name[:3]} {day}, {year}",
        )
    )


def time_of_day(random: Random, _split: Split) -> str:
    """Return a time, hours and minutes."""
    return f"{random.randrange(24):02}:{random.randrange(60):02}"


def amount(cents: int) -> str:
    """Return an amount of money, such as "$12.40"."""
    return f"${cents // 100:,}.{cents % 100:02}"


def price(random: Random, _split: Split) -> str:
    """Return a price up to $999.99; one in two is below $20."""
    return amount(random.randint(50, random.choice((1_999, 99_999))))


def phone(random: Random, _split: Split) -> str:
    """Return a telephone number in one of two usual forms; its area code is one that nobody has."""
    middle, last = random.randint(100, 999), random.randrange(10_000)
    return random.choice((f"555-{middle}-{last:04}", f"(555) {middle}-{last:04}"))


def letter_code(random: Random, _split: Split) -> str:
    """Return a code such as "KD-4821"."""
    return f"{random.choice(_LETTERS)}{random.choice(_LETTERS)}-{random.randrange(10_000):04}"


def _cased(random: Random, text: str) -> str:
    return random.choice((text, text, text.capitalize(), text.title(), text.upper()))


PRINTED: Final[dict[str, Callable[[Random, Split], str]]] = {
    "word": word,
    "phrase": phrase,
    "number": number,
    "date": date,
    "time": time_of_day,
    "price": price,
}
"""What the name says, drawn by the function."""

"""The sizes of somebody's pictures: a list of them, or the pictures themselves."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foveate.errors import ConfigurationError, ImageError
from foveate.images import read_source

FORMS = "give lines of `width height [count]`, with spaces or commas, or JSON lines with those names"
HEADER = ["width", "height", "count"]


def read_trace(path: Path) -> Counter[tuple[int, int]]:
    """Return how often each (width, height) comes, in pixels.

    `path` is a folder, whose pictures are counted by their headers and whose other files are passed over; or a text,
    CSV or JSONL file. Raises ConfigurationError that names the line, or says that there is nothing.
    """
    try:
        sizes = _sizes_of_folder(path) if path.is_dir() else _sizes_of_lines(path)
    except OSError as error:
        raise ConfigurationError(f"the trace {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the trace {path} is not UTF-8 text; {FORMS}, or a folder of pictures") from None
    if not sizes:
        raise ConfigurationError(f"the trace {path} holds no picture; {FORMS}, or a folder of pictures")
    return sizes


def _sizes_of_folder(folder: Path) -> Counter[tuple[int, int]]:
    sizes: Counter[tuple[int, int]] = Counter()
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        try:
            header = read_source(file)
        except ImageError:
            continue
        if header is not None:
            turned = header.orientation >= 5
            sizes[(header.height, header.width) if turned else (header.width, header.height)] += 1
    return sizes


def _sizes_of_lines(file: Path) -> Counter[tuple[int, int]]:
    sizes: Counter[tuple[int, int]] = Counter()
    for number, words in _lines(file):
        try:
            width, height, count = map(_whole, [*words, *([1] if len(words) == 2 else [])])
        except ValueError:
            raise ConfigurationError(f"line {number} of {file.name} is not a size; {FORMS}") from None
        if min(width, height, count) < 1:
            raise ConfigurationError(f"line {number} of {file.name} holds {words}; each number is at least 1")
        sizes[width, height] += count
    return sizes


def _whole(word: object) -> int:
    if isinstance(word, bool) or not isinstance(word, str | int):
        raise ValueError(f"{word!r} is not a whole number")
    return int(word)


def _lines(file: Path) -> Iterator[tuple[int, list[Any]]]:
    """Yield number and values of each line that is not empty, a comment or a CSV header."""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith(("{", "[")):
            yield number, _json_values(text)
            continue
        words = next(csv.reader([text])) if "," in text else re.split(r"[\s;]+", text)
        words = [word.strip() for word in words]
        if [word.lower() for word in words] not in (HEADER, HEADER[:2]):
            yield number, words


def _json_values(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value.get("width"), value.get("height"), value.get("count", 1)]

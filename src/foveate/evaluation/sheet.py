"""A picture of what was answered wrongly: people see more in it than in a number."""

import textwrap
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from foveate.evaluation.example import Example

CELL_WIDTH, PICTURE_HEIGHT, TEXT_HEIGHT, COLUMNS = 300, 220, 90, 5
MOST_CELLS = 60


def write_sheet(path: Path, wrong: Iterable[tuple[Example, str]]) -> int:
    """Draw at most 60 wrongly answered questions into a PNG; returns how many it shows, and writes nothing for none."""
    cells = [_cell(example, answer) for example, answer in islice(wrong, MOST_CELLS)]
    if not cells:
        return 0
    rows = -(-len(cells) // COLUMNS)
    height = PICTURE_HEIGHT + TEXT_HEIGHT
    sheet = Image.new("RGB", (COLUMNS * CELL_WIDTH, rows * height), "white")
    for index, cell in enumerate(cells):
        sheet.paste(cell, (index % COLUMNS * CELL_WIDTH, index // COLUMNS * height))
    sheet.save(path)
    return len(cells)


def _cell(example: Example, answer: str) -> Image.Image:
    cell = Image.new("RGB", (CELL_WIDTH, PICTURE_HEIGHT + TEXT_HEIGHT), "white")
    width = CELL_WIDTH // len(example.pictures)
    for index, picture in enumerate(example.pictures):
        small = picture.copy()
        small.thumbnail((width - 8, PICTURE_HEIGHT - 8))
        cell.paste(small, (index * width + 4, 4))
    draw, font = ImageDraw.Draw(cell), ImageFont.load_default(12)
    lines = textwrap.wrap(f"{example.skill}: {example.question}", 46)[:3]
    lines += [f"right: {example.answer[:60]}", f"given: {answer[:60]}"]
    for index, line in enumerate(lines):
        colour = "darkgreen" if line.startswith("right: ") else "darkred" if line.startswith("given: ") else "black"
        draw.text((6, PICTURE_HEIGHT + 16 * index), line, fill=colour, font=font)
    return cell

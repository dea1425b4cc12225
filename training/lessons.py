"""What one picture teaches: questions about it with their answers, and the symbols on it where they are known.

A page takes a hundred times as long to draw and to encode as a question does to read, so several are asked of it, one
after another in one conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from glyphs import BLOCK_PIXELS, Glyph, figures_of, glyphs_of
from PIL import Image

from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.grounds import add_noise, paint_ground
from foveate.evaluation.drawing.inks import choose_paper
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.scenes import paint_scene
from foveate.evaluation.drawing.sheets import Sheet, Text, paint_sheet
from foveate.evaluation.drawing.wording import PRINTED
from foveate.evaluation.phrases import worded
from foveate.evaluation.skills import counting, draw, forms, pages, relations, shapes
from foveate.evaluation.splits import Split
from foveate.evaluation.topics import world_question
from foveate.evaluation.typefaces import load_font, typefaces

QUESTIONS = 5
"""Questions about one page or form."""
UNKNOWN_SHARE = 0.04
"""How many of them are about the world, and not to be answered."""
STRETCHED = ("read_lines", "read_form", "transcription", "printed_text")
"""Lessons in which nothing depends on the proportions of the picture."""
STRETCHED_SHARE, STRETCH = 0.4, (0.85, 1.2)

Turn = tuple[str, str]
"""A question and its answer."""


@dataclass(frozen=True)
class Lesson:
    """One or two pictures and what is asked about them."""

    pictures: tuple[Image.Image, ...]
    turns: tuple[Turn, ...]
    glyphs: tuple[Glyph, ...] | None = None
    """Every symbol on the only picture; None where they are not known."""


def draw_lesson(kind: str, seed: int) -> Lesson:
    """Return lesson number `seed` of a kind: one of LESSONS, or the single question of an evaluated skill."""
    random = Random(f"{kind} {seed}")
    if kind in LESSONS:
        lesson = LESSONS[kind](random)
    else:
        example = draw(kind, seed, Split.TRAINING)
        lesson = Lesson(example.pictures, ((example.question, example.answer),))
    return stretched(random, lesson) if kind in STRETCHED and random.random() < STRETCHED_SHARE else lesson


def stretched(random: Random, lesson: Lesson) -> Lesson:
    """Return the lesson with its picture made wider or narrower, higher or lower: fonts that nobody has."""
    (picture,) = lesson.pictures
    across, down = (random.uniform(*STRETCH) for _ in range(2))
    size = round(picture.width * across), round(picture.height * down)
    glyphs = None
    if lesson.glyphs is not None:
        across, down = size[0] / picture.width, size[1] / picture.height
        glyphs = tuple(replace(glyph, x=glyph.x * across, y=glyph.y * down) for glyph in lesson.glyphs)
    return replace(lesson, pictures=(picture.resize(size, Image.Resampling.BILINEAR),), glyphs=glyphs)


def read_lines(random: Random) -> Lesson:
    """Return a picture that the tiler leaves as it is, with a few lines at 13 to 48 pixels, every other one small."""
    width, height = _untouched_size(random)
    size = random.randint(*random.choice(((13, 22), (14, 48))))
    typeface, bold = random.choice(typefaces(Split.TRAINING)), random.random() < 0.25
    font, pitch = load_font(typeface, bold, size), round(size * random.uniform(1.25, 1.9))
    texts: list[Text] = []
    top = random.randint(2, pitch)
    while top + size * 1.3 < height:
        line = PRINTED[random.choice(list(PRINTED))](random, Split.TRAINING)
        spare = width - 8 - round(font.getlength(line))
        if spare >= 0:
            texts.append(Text(line, 4 + random.randint(0, spare), top, size, bold))
        top += pitch * random.choice((1, 1, 1, 2))
    ground, ink = choose_paper(random)
    sheet = Sheet(width, height, ground, ink, typeface, tuple(texts))
    image = paint_sheet(sheet, paint_ground(random, Split.TRAINING, ground, (width, height)))
    image = add_noise(random, image, random.choice((0, 0, 6, 10)))
    answer = "\n".join(text.text for text in texts) or "I don't know."
    return Lesson((image,), (("Read all the text.", answer),), glyphs_of(sheet))


def read_page(random: Random) -> Lesson:
    """Return questions about a page, with all its characters."""
    page = choose_page(random, Split.TRAINING)
    turns = _turns(random, lambda: pages.ask_about(random, page), QUESTIONS)
    return Lesson((paint_sheet(page.sheet),), turns, glyphs_of(page.sheet))


def read_form(random: Random) -> Lesson:
    """Return questions about a form, with all its characters."""
    form = choose_form(random, Split.TRAINING)
    turns = _turns(random, lambda: forms.ask_about(random, form), QUESTIONS)
    return Lesson((paint_sheet(form.sheet),), turns, glyphs_of(form.sheet))


def see_shapes(random: Random) -> Lesson:
    """Return questions about scattered shapes."""
    scene = shapes.choose_scene(random, Split.TRAINING)
    turns = _turns(random, lambda: shapes.ask_about(random, Split.TRAINING, scene), 3)
    return Lesson((paint_scene(random, Split.TRAINING, scene),), turns, figures_of(scene))


def see_counting(random: Random) -> Lesson:
    """Return questions how many shapes there are, of a kind, of a colour, or in all."""
    scene, things, count = counting.counted_scene(random, Split.TRAINING)
    asked = {things: count}
    for figure in random.choices(scene.figures, k=2):
        things, is_counted = random.choice(counting.ways_to_count(figure.kind))
        count = sum(is_counted(other.kind) for other in scene.figures)
        if count <= counting.MOST:
            asked[things] = count
    turns = [(worded(random, counting.WORDINGS["count"], things=each), str(count)) for each, count in asked.items()]
    return Lesson((paint_scene(random, Split.TRAINING, scene),), tuple(turns), figures_of(scene))


def see_relations(random: Random) -> Lesson:
    """Return a question that compares two shapes."""
    scene, asked, answer = relations.choose(random, Split.TRAINING)
    return Lesson((paint_scene(random, Split.TRAINING, scene),), ((asked, answer),), figures_of(scene))


LESSONS: dict[str, Callable[[Random], Lesson]] = {
    "read_lines": read_lines,
    "read_page": read_page,
    "read_form": read_form,
    "see_shapes": see_shapes,
    "see_counting": see_counting,
    "see_relations": see_relations,
}


def _turns(random: Random, ask: Callable[[], Turn], count: int) -> tuple[Turn, ...]:
    def turn() -> Turn:
        if random.random() < UNKNOWN_SHARE:
            return world_question(random, Split.TRAINING), "I don't know."
        return ask()

    return tuple(turn() for _ in range(count))


def _untouched_size(random: Random) -> tuple[int, int]:
    # Multiples of 32 with 64 to 256 image tokens: the tiler resizes nothing, so a pixel stays where it is.
    while True:
        columns, rows = random.randint(4, 24), random.randint(3, 20)
        if 64 <= columns * rows <= 256:
            return columns * BLOCK_PIXELS, rows * BLOCK_PIXELS

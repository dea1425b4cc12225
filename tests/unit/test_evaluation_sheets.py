"""Pages and forms hold what the questions ask for, at the size that is promised, and every line can be read."""

import re
from functools import cache
from random import Random

import numpy as np
import pytest

from foveate.evaluation import VERSION, Split, draw
from foveate.evaluation.drawing.fields import LABELS
from foveate.evaluation.drawing.forms import choose_form
from foveate.evaluation.drawing.pages import choose_page
from foveate.evaluation.drawing.sheets import paint_sheet
from foveate.evaluation.skills.pages import ask_about

both_sides = pytest.mark.parametrize("split", list(Split))
NUMBER = re.compile(r"^\d+\. ")


@cache
def pages(split):
    random = Random(9)
    return [choose_page(random, split) for _ in range(40)]


@cache
def forms(split):
    random = Random(10)
    return [choose_form(random, split) for _ in range(120)]


def sheets(split):
    return [page.sheet for page in pages(split)] + [form.sheet for form in forms(split)]


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def below(sheet, text):
    """Return the nearest text of the same column below another."""
    under = [other for other in sheet.texts if other.left == text.left and other.top > text.top]
    return min(under, key=lambda other: other.top)


def cents(printed):
    return int(re.sub(r"\D", "", printed))


@both_sides
def test_every_line_is_whole_and_on_its_own(split):
    for sheet in sheets(split):
        boxes = [sheet.box(text) for text in sheet.texts]
        for at, box in enumerate(boxes):
            assert box[0] >= 4
            assert box[1] >= 4
            assert box[2] <= sheet.width - 4
            assert box[3] <= sheet.height - 4
            assert not any(overlap(box, other) for other in boxes[:at])


@both_sides
def test_no_rule_strikes_through_a_line(split):
    for sheet in sheets(split):
        for rule in sheet.rules:
            left, top, right, bottom = rule.box
            assert not any(overlap(sheet.box(text), (left, top, right + 1, bottom + 1)) for text in sheet.texts)


@both_sides
def test_a_page_has_at_least_1600_by_1200_pixels_and_20_lines_of_16_to_24(split):
    for page in pages(split):
        assert page.sheet.width >= 1600
        assert page.sheet.height >= 1200
        assert sum(16 <= text.size_pixels <= 24 for text in page.sheet.texts) >= 20 + (page.page_number is not None)


@both_sides
def test_twenty_rows_of_ink_are_seen_on_pages_of_one_column(split):
    single = [page for page in pages(split) if len({text.left for text in page.sheet.texts[:-1]}) == 1][:4]
    assert single
    for page in single:
        inked = (np.asarray(paint_sheet(page.sheet)) != page.sheet.paper.first).any(axis=(1, 2))
        assert int((np.diff(inked.astype(int)) == 1).sum()) >= 20


@both_sides
def test_no_word_occurs_twice_on_a_page_so_that_every_question_has_one_answer(split):
    for page in pages(split):
        headings = [section.heading for section in page.sections]
        words = " ".join([page.title, *headings, *page.lines]).lower().split()
        assert len(words) == len(set(words))
        assert all(2 <= len(line.split()) <= 5 for line in page.lines)


@both_sides
def test_the_first_line_of_a_section_is_printed_right_below_its_heading(split):
    for page in pages(split):
        for section in page.sections:
            heading = next(text for text in page.sheet.texts if text.text == section.heading)
            assert NUMBER.sub("", below(page.sheet, heading).text) == section.lines[0]


@both_sides
def test_numbered_lines_carry_their_number_and_no_others_do(split):
    for page in pages(split):
        printed = {text.text for text in page.sheet.texts}
        for number, line in enumerate(page.lines, 1):
            assert (f"{number}. {line}" if page.numbered else line) in printed


def answer_from(page, question):
    """Find the answer to a question in the printed lines of a page, or None where the question is of another kind."""
    printed = {text.text: text for text in page.sheet.texts}
    if match := re.search(r"heading \"?([\w ]+?)\"?(?: say)?[?.]", question):
        return NUMBER.sub("", below(page.sheet, printed[match[1]]).text)
    if match := re.search(r"(?:begins|starts) with \"?(\w+)", question):
        (line,) = (text for text in printed if text.split()[0] == match[1] and printed[text].size_pixels <= 24)
        return line.split()[-1] if re.search("last word|ends", question) else line
    if match := re.search(r"line (?:number )?(\d+)", question):
        (line,) = (NUMBER.sub("", text) for text in printed if text.startswith(f"{match[1]}. "))
        return line.split()[-1] if re.search("last word|final word|ends", question) else line
    if "title" in question:
        return max(page.sheet.texts, key=lambda text: text.size_pixels).text
    return next(text for text in printed if text.startswith("page ")).removeprefix("page ")


@both_sides
def test_questions_about_pages_are_answered_by_what_is_printed(split):
    for seed in range(60):
        page = choose_page(Random(f"{VERSION} pages {split} {seed}"), split)
        if seed < 3:
            assert draw("pages", seed, split).pictures[0].tobytes() == paint_sheet(page.sheet).tobytes()
        question, answer = ask_about(Random(seed), page)
        assert answer_from(page, question) == answer, question


@both_sides
def test_a_form_has_512_to_1000_by_512_to_1400_pixels_and_at_least_six_fields(split):
    for form in forms(split):
        assert 512 <= form.sheet.width <= 1000
        assert 512 <= form.sheet.height <= 1400
        assert len({field.noun for field in form.fields}) == len(form.fields) >= 6


@both_sides
def test_each_value_is_printed_beside_a_label_of_its_own_or_at_the_head_of_the_receipt(split):
    for form in forms(split):
        for field in form.fields:
            places = [text for text in form.sheet.texts if text.text == field.value]
            rows = [
                {text.text.removesuffix(":") for text in form.sheet.texts if text.top == place.top} for place in places
            ]
            head = {"name of the shop"} | ({"address", "phone number"} if form.document == "receipt" else set())
            assert places
            assert field.noun in head or any(row.intersection(LABELS[field.noun]) for row in rows), field


@both_sides
def test_the_sums_on_receipts_and_invoices_add_up(split):
    for form in forms(split):
        money = {field.noun: cents(field.value) for field in form.fields if field.is_amount}
        if "total" in money:
            assert sum(item.cents for item in form.items) == money["subtotal"]
            assert money["subtotal"] - money.get("discount", 0) + money["tax"] == money["total"]
            assert money.get("amount paid in cash", money["total"]) - money["total"] == money.get("change", 0)


@both_sides
def test_items_are_printed_with_their_price_in_one_row(split):
    for form in forms(split):
        for item in form.items:
            name = next(text for text in form.sheet.texts if text.text == item.name)
            beside = [text.text for text in form.sheet.texts if text.top == name.top]
            assert item.price in beside
            assert form.document == "receipt" or str(item.quantity) in beside


def rows_of_letters(inked):
    """Return the first and last row of each stretch of inked rows, without the rules: thin, and most of the width."""
    edges = np.flatnonzero(np.diff(np.pad(inked.any(axis=1).astype(int), 1)))
    stretches = zip(edges[::2], edges[1::2] - 1, strict=True)
    return [(top, bottom) for top, bottom in stretches if bottom - top > 1 or inked[top].mean() < 0.6]


@both_sides
def test_no_row_of_a_transcribed_text_is_cut_and_no_row_is_left_out(split):
    checked = 0
    for seed in range(80):
        example = draw("transcription", seed, split)
        pixels = np.asarray(example.pictures[0]).astype(int)
        if np.ptp(pixels[:, :3], axis=(0, 1)).max() > 0:
            continue  # The ground is not of one colour, so ink cannot be told from it.
        rows = rows_of_letters(np.abs(pixels - pixels[0, 0]).max(axis=-1) > 40)
        assert rows[0][0] > 0
        assert rows[-1][1] < len(pixels) - 1
        lines = len(example.answer.split("\n"))
        assert lines / 2 <= len(rows) <= lines + 1
        checked += 1
    assert checked >= 20

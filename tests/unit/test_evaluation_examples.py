"""Every skill draws well-formed questions that depend on nothing but the skill, the side and the number."""

import hashlib
import importlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from foveate.errors import ConfigurationError
from foveate.evaluation import EVALUATED_SKILLS, SKILLS, Split, draw

DRAWS = {"pages": 8, "forms": 30, "unknown": 40, "describe": 40, "transcription": 40}
every_skill = pytest.mark.parametrize("skill", list(SKILLS))


@cache
def drawn(skill, split=Split.TEST, count=None):
    return [draw(skill, seed, split) for seed in range(count or DRAWS.get(skill, 80))]


def fingerprint(skill, split, seed):
    example = draw(skill, seed, split)
    digest = hashlib.sha256(f"{example.question} {example.answer}".encode())
    for picture in example.pictures:
        digest.update(f"{picture.size}".encode() + picture.tobytes())
    return digest.hexdigest()


def fingerprints():
    return [fingerprint(skill, split, seed) for skill in SKILLS for split in Split for seed in range(2)]


def test_the_same_number_gives_the_same_bytes_in_another_process():
    program = (
        "import hashlib\nfrom foveate.evaluation import SKILLS, Split, draw\n"
        "for skill in SKILLS:\n for split in Split:\n  for seed in range(2):\n"
        "   example = draw(skill, seed, split)\n"
        "   digest = hashlib.sha256(f'{example.question} {example.answer}'.encode())\n"
        "   for picture in example.pictures: digest.update(f'{picture.size}'.encode() + picture.tobytes())\n"
        "   print(digest.hexdigest())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}
    )
    assert done.stdout.split() == fingerprints()


@every_skill
def test_other_examples_in_between_change_nothing(skill):
    before = fingerprint(skill, Split.TEST, 7)
    draw(skill, 8, Split.TEST)
    assert fingerprint(skill, Split.TEST, 7) == before


@every_skill
def test_other_numbers_and_the_other_side_give_other_examples(skill):
    seen = {fingerprint(skill, split, seed) for split in Split for seed in range(8)}
    assert len(seen) == 16


@every_skill
def test_an_example_names_its_skill(skill):
    assert {example.skill for example in drawn(skill)} == {skill}


@every_skill
def test_pictures_are_rgb_and_two_only_where_the_question_is_about_two(skill):
    counts = {len(example.pictures) for example in drawn(skill)}
    assert counts == ({2} if skill == "pairs" else {1, 2} if skill == "unknown" else {1})
    assert {picture.mode for example in drawn(skill) for picture in example.pictures} == {"RGB"}


@every_skill
def test_questions_are_sentences_without_an_open_slot(skill):
    for example in drawn(skill):
        assert re.fullmatch(r"[A-Z][^{}]*[?.]", example.question), example.question


@every_skill
def test_answers_end_with_a_full_stop_only_where_they_are_sentences(skill):
    for example in drawn(skill):
        assert example.answer.strip() == example.answer != ""
        assert example.answer.endswith(".") == (skill in {"unknown", "describe"}), example.answer


@pytest.mark.parametrize("skill", [skill for skill in SKILLS if skill != "unknown"])
def test_each_kind_of_question_has_at_least_four_wordings(skill):
    wordings = importlib.import_module(f"foveate.evaluation.skills.{skill}").WORDINGS
    assert {kind: len(set(texts)) for kind, texts in wordings.items() if len(set(texts)) < 4} == {}


@pytest.mark.parametrize("skill", [skill for skill in SKILLS if skill != "unknown"])
def test_drawn_questions_follow_the_wordings_and_vary(skill):
    wordings = importlib.import_module(f"foveate.evaluation.skills.{skill}").WORDINGS
    patterns = {re.sub(r"\\\{.*?\\\}", ".+", re.escape(text)) for texts in wordings.values() for text in texts}
    used = Counter()
    for example in drawn(skill):
        matching = [pattern for pattern in patterns if re.fullmatch(pattern, example.question)]
        assert matching, example.question
        used.update(matching)
    assert len(used) >= min(4, len(patterns))


@cache
def answers(skill):
    return [draw(skill, seed, Split.TEST).answer for seed in range(900 if skill == "relations" else 700)]


@pytest.mark.parametrize(
    ("skill", "one", "other", "count", "tolerance"),
    [
        ("relations", "yes", "no", 400, 0.05),
        ("pairs", "the first", "the second", 400, 0.05),
        ("pairs", "yes", "no", 80, 0.15),
        ("shapes", "yes", "no", 60, 0.15),
    ],
)
def test_opposite_answers_come_alike_often(skill, one, other, count, tolerance):
    given = [answer for answer in answers(skill) if answer in (one, other)][:count]
    assert len(given) == count
    assert abs(given.count(one) / count - 0.5) <= tolerance


def test_counts_from_one_to_six_come_alike_often():
    given = Counter(example.answer for example in drawn("counting", count=450))
    assert {answer: 50 <= times <= 100 for answer, times in given.items()} == dict.fromkeys("123456", True)


def test_the_evaluated_skills_are_all_but_the_two_that_are_only_learnt_from():
    assert set(SKILLS) - set(EVALUATED_SKILLS) == {"describe", "transcription"}
    assert set(EVALUATED_SKILLS) < set(SKILLS)


def test_an_unknown_skill_is_refused_with_the_names_of_the_skills():
    with pytest.raises(ConfigurationError, match=r"no skill 'chess'; the skills are shapes, counting, .*transcription"):
        draw("chess", 0, Split.TEST)

"""`foveate eval` marks answers, and tells whether the reference answers otherwise."""

import json

import pytest
from PIL import Image

from foveate.evaluation import EVALUATED_SKILLS
from foveate.evaluation.scoring import is_right, score


def test_every_skill_is_marked_and_the_wrong_answers_are_shown(foveate, model, tmp_path):
    out = tmp_path / "report"
    result = foveate(
        "eval", "--model", model, "--graphs", "off", "--limit", 1, "--device", "cpu", "--json", "--out", out
    )
    assert (result.code, result.err) == (0, "")
    record = json.loads(result.out)
    assert json.loads((out / "evaluation.json").read_text()) == record
    marks = record["scores"]["foveate, eager"]
    assert set(marks) == {*EVALUATED_SKILLS, "all"}
    assert marks["all"]["questions"] == len(EVALUATED_SKILLS)
    assert all(0 <= mark["exact_match"] <= 1 and 0 <= mark["rouge_l"] <= 1 for mark in marks.values())
    with Image.open(out / "wrong.png") as sheet:
        assert sheet.width > 1000


def test_the_reference_gives_the_same_answers_in_float32(foveate, model):
    options = ("--graphs", "off", "--against", "transformers", "--limit", 1, "--device", "cpu", "--json")
    result = foveate("eval", "--model", model, *options)
    assert result.code == 0
    (difference,) = json.loads(result.out)["differences"]
    assert (difference["first"], difference["second"]) == ("foveate, eager", "transformers (sdpa)")
    assert difference["changed_answers"] == 0
    assert difference["mean_logit_norm_difference"] < 1e-5


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (("--limit", 0), "limit is 0"),
        (("--graphs", "maybe"), "graphs is 'maybe'"),
        (("--against", "vllm"), "against is 'vllm'"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(foveate, model, options, wrong):
    result = foveate("eval", "--model", model, *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert wrong in result.err


def test_answers_are_marked_after_a_plain_normalisation():
    assert is_right(" A  red star. ", "a red star")
    assert not is_right("a red stars", "a red star")
    marks = score(["yes", "the red star", "no"], ["Yes.", "the blue star", "yes"])
    assert marks.exact_match == pytest.approx(1 / 3)
    assert marks.rouge_l == pytest.approx((1 + 2 / 3 + 0) / 3)

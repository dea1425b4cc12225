"""The model that ships with Foveate answers a slice of the published test questions of every skill."""

import math

import pytest

from foveate.evaluation import EVALUATED_SKILLS
from foveate.evaluation.predictors import FoveatePredictor
from foveate.evaluation.runner import evaluate, wrong_answers

QUESTIONS = 22
"""Of each skill: 198 in all."""

SHARES = {
    "shapes": 0.997,
    "counting": 0.903,
    "relations": 0.990,
    "printed_text": 0.943,
    "pages": 0.710,
    "forms": 0.873,
    "digits": 0.933,
    "pairs": 0.983,
    "unknown": 0.970,
}
"""The share of right answers that was measured of 300 questions of each skill."""


def least_right(share: float) -> int:
    """Return the right answers of QUESTIONS that a model of that share has, but for two standard errors."""
    return math.ceil(QUESTIONS * share - 2 * math.sqrt(QUESTIONS * share * (1 - share)))


def test_every_evaluated_skill_has_its_share():
    assert SHARES.keys() == set(EVALUATED_SKILLS)


@pytest.mark.parametrize("skill", EVALUATED_SKILLS)
def test_the_model_answers_as_many_questions_as_it_must(demo: FoveatePredictor, skill: str) -> None:
    (result,) = evaluate([demo], limit=QUESTIONS, skills=[skill])
    wrong = [f"{example.question} {example.answer} / {given}" for example, given in wrong_answers(result)]
    assert QUESTIONS - len(wrong) >= least_right(SHARES[skill]), "\n".join(wrong)

"""How an answer is marked: exact match after a plain normalisation, and ROUGE-L."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from foveate.evaluation.extras import import_extra


@dataclass(frozen=True)
class Score:
    """Marks of a set of answers, from 0 to 1."""

    questions: int
    """Answers that were marked."""
    exact_match: float
    """Share of answers equal to the expected one after `normalised`."""
    rouge_l: float
    """Mean F-measure of ROUGE-L, words compared without stemming."""


def normalised(text: str) -> str:
    """Return a text in lower case, with single blanks and without a full stop at its end."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".").lower()


def is_right(answer: str, expected: str) -> bool:
    """Whether an answer is the expected one."""
    return normalised(answer) == normalised(expected)


def score(answers: Sequence[str], expected: Sequence[str]) -> Score:
    """Mark answers against the expected ones; there must be at least one."""
    scorer = import_extra("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=False)
    pairs = list(zip(answers, expected, strict=True))
    rouge = fmean(scorer.score(right, answer)["rougeL"].fmeasure for answer, right in pairs)
    return Score(len(pairs), fmean(is_right(answer, right) for answer, right in pairs), rouge)

"""Asks a predictor a versioned set of questions, and compares predictors with each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from foveate.evaluation.example import Example
from foveate.evaluation.predictors import Prediction, Predictor
from foveate.evaluation.scoring import Score, is_right, score
from foveate.evaluation.skills import EVALUATED_SKILLS, VERSION, draw
from foveate.evaluation.splits import Split

QUESTIONS_PER_SKILL = 300
MAX_TOKENS = 48
BATCH = 8
"""Questions that are answered together."""


@dataclass(frozen=True)
class Result:
    """What one predictor answered."""

    predictor: str
    """Its name."""
    examples: tuple[Example, ...]
    """The questions, skill by skill."""
    predictions: tuple[Prediction, ...]
    """Its answers, one for each question."""

    def scores(self) -> dict[str, Score]:
        """Return the marks of every skill, and of all questions as `all`."""
        return {
            skill: score([answer for answer, _ in pairs], [right for _, right in pairs])
            for skill, pairs in self._by_skill().items()
        }

    def right_answers(self) -> dict[str, int]:
        """Return the number of right answers of every skill, and of all questions as `all`."""
        return {
            skill: sum(is_right(answer, right) for answer, right in pairs) for skill, pairs in self._by_skill().items()
        }

    def _by_skill(self) -> dict[str, list[tuple[str, str]]]:
        """Return the answers given with those expected."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for example, prediction in zip(self.examples, self.predictions, strict=True):
            groups.setdefault(example.skill, []).append((prediction.text, example.answer))
        return {**groups, "all": [pair for pairs in groups.values() for pair in pairs]}


@dataclass(frozen=True)
class Difference:
    """How two predictors differ on the same questions."""

    first: str
    second: str
    changed_answers: int
    """Questions with another text, to the letter."""
    largest_logit_difference: float
    """Largest absolute difference of any score of a first token."""
    mean_logit_norm_difference: float
    """Mean relative norm of the difference of the first scores."""


def questions(skill: str, count: int) -> Iterator[Example]:
    """Draw the first `count` questions of a skill's test set."""
    return (draw(skill, seed, Split.TEST) for seed in range(count))


def evaluate(
    predictors: Sequence[Predictor],
    *,
    limit: int = QUESTIONS_PER_SKILL,
    skills: Sequence[str] = EVALUATED_SKILLS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Ask every predictor the same questions; `limit` is the number of questions of a skill."""
    total = len(skills) * limit
    examples: list[Example] = []
    predictions: dict[str, list[Prediction]] = {predictor.name: [] for predictor in predictors}
    for skill in skills:
        drawn = list(questions(skill, limit))
        for first in range(0, len(drawn), BATCH):
            batch = drawn[first : first + BATCH]
            for predictor in predictors:
                predictions[predictor.name] += predictor.answer(batch, MAX_TOKENS)
            examples += batch
            if progress:
                progress(len(examples), total)
    return [Result(name, tuple(examples), tuple(made)) for name, made in predictions.items()]


def compare(first: Result, second: Result) -> Difference:
    """Compare two results over the same questions."""
    pairs = list(zip(first.predictions, second.predictions, strict=True))
    gaps = [float((a.first_logits - b.first_logits).abs().max()) for a, b in pairs]
    norms = [float((a.first_logits - b.first_logits).norm() / b.first_logits.norm()) for a, b in pairs]
    return Difference(
        first=first.predictor,
        second=second.predictor,
        changed_answers=sum(a.text != b.text for a, b in pairs),
        largest_logit_difference=max(gaps),
        mean_logit_norm_difference=float(torch.tensor(norms).mean()),
    )


def wrong_answers(result: Result) -> Iterator[tuple[Example, str]]:
    """Return the questions that were answered wrongly, with the answers given."""
    for example, prediction in zip(result.examples, result.predictions, strict=True):
        if not is_right(prediction.text, example.answer):
            yield example, prediction.text


def as_record(results: Sequence[Result], differences: Sequence[Difference]) -> Mapping[str, object]:
    """Return everything as plain values for a JSON file."""
    return {
        "set_version": VERSION,
        "scores": {
            result.predictor: {skill: vars(marks) for skill, marks in result.scores().items()} for result in results
        },
        "differences": [vars(difference) for difference in differences],
    }

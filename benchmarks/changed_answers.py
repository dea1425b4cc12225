"""Do encoder graphs, company, or Foveate instead of transformers change what the packaged model answers in bfloat16?

    python benchmarks/changed_answers.py OUT.json [--questions 50]

The same test questions of every skill go to Foveate with graphs and without, several at a time; with graphs one at a
time; with the encoder in float8; and to transformers with two attention backends. For each pair: the answers that
differ in any letter, and the largest difference of the first token's scores. Needs a CUDA GPU and the packages that
drawing needs (`pip install '.[eval]'`), but no network.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from common import need_gpu, write_report

from foveate import EngineSettings
from foveate.evaluation import EVALUATED_SKILLS, VERSION
from foveate.evaluation.example import Example
from foveate.evaluation.predictors import FoveatePredictor, Prediction, Predictor, TransformersPredictor
from foveate.evaluation.runner import Result, compare, evaluate
from foveate.loading import find_folder, load

ATTENTION_BACKENDS = ("sdpa", "eager")


class Alone:
    """Asks one question at a time."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self.name = predictor, predictor.name

    def answer(self, examples: Sequence[Example], max_tokens: int) -> list[Prediction]:
        """Answer several questions."""
        return [self._predictor.answer([example], max_tokens)[0] for example in examples]


def predictors(model: str | None) -> list[Predictor]:
    """Return all of them, on the GPU in bfloat16."""
    ours: list[Predictor] = []
    for name, graphs in (
        ("foveate, graphs", True),
        ("foveate, eager", False),
        ("foveate, alone", True),
        ("foveate, float8", True),
    ):
        vlm = load(
            model,
            device="cuda",
            dtype="bfloat16",
            compilation_config={"cudagraph_mm_encoder": graphs},
            encoder_dtype="fp8" if name.endswith("float8") else "auto",
            engine=EngineSettings(cache_megabytes=2000, image_cache_megabytes=0),
        )
        predictor = FoveatePredictor(vlm, name)
        ours.append(Alone(predictor) if name.endswith("alone") else predictor)
    where = (find_folder(model), vlm.model.device, vlm.model.dtype)
    return [*ours, *(TransformersPredictor(*where, attention) for attention in ATTENTION_BACKENDS)]


def scores_of(result: Result) -> dict[str, dict[str, float]]:
    """Return questions and exact match by skill, as `foveate eval` calls them."""
    questions = Counter(example.skill for example in result.examples)
    questions["all"] = len(result.examples)
    return {
        skill: {"questions": questions[skill], "exact_match": right / questions[skill]}
        for skill, right in result.right_answers().items()
    }


def show(done: int, total: int) -> None:
    """Print one line, over the last one."""
    print(f"\r{done} of {total} questions", end="" if done < total else "\n", flush=True)


def ask_all(asked: Sequence[Predictor], questions: int, skills: Sequence[str]) -> dict[str, Any]:
    """Ask everyone, print what came of it, and return it for the report."""
    start = time.perf_counter()
    results = evaluate(asked, limit=questions, skills=skills, progress=show)
    differences = [compare(first, second) for first, second in combinations(results, 2)]
    for result in results:
        print(f"{result.predictor}: {result.right_answers()}")
    for difference in differences:
        print(difference)
    return {
        "set_version": VERSION,
        "scores": {result.predictor: scores_of(result) for result in results},
        "differences": [vars(difference) for difference in differences],
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    """Ask, compare and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--questions", type=int, default=50, help="of each skill")
    parser.add_argument("--model", default=None, help="a checkpoint folder; by default the packaged model")
    chosen = parser.parse_args()
    need_gpu()
    report = ask_all(predictors(chosen.model), chosen.questions, EVALUATED_SKILLS)
    write_report(chosen.out, "Do graphs, or Foveate instead of transformers, change any answer in bfloat16?", report)


if __name__ == "__main__":
    main()

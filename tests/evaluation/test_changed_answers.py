"""The benchmark that counts changed answers makes what the tables of docs/accuracy.md read."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import foveate
from foveate.evaluation.predictors import FoveatePredictor, TransformersPredictor
from foveate.loading import DEMO_MODEL

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The scripts `changed_answers` and `tables`, which are plain files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import changed_answers
        import tables

        yield changed_answers, tables
    for name in ("changed_answers", "tables", "common"):
        sys.modules.pop(name, None)


def test_answers_are_compared_in_pairs_and_become_the_tables(demo, scripts, monkeypatch, tmp_path, capsys):
    """In float32 on a CPU nobody's answers differ; a model of another type is compared with them."""
    changed_answers, tables = scripts
    half = FoveatePredictor(foveate.load(device="cpu", dtype="bfloat16"), "foveate, bfloat16")
    reference = TransformersPredictor(DEMO_MODEL, torch.device("cpu"), torch.float32)
    report = changed_answers.ask_all([demo, reference, half], 2, ["shapes", "digits"])
    assert "4 of 4 questions" in capsys.readouterr().out
    same, other, _ = report["differences"]
    assert (same["first"], same["second"], same["changed_answers"]) == ("foveate", "transformers (sdpa)", 0)
    assert other["largest_logit_difference"] > 10 * same["largest_logit_difference"]

    (tmp_path / "nvidia-h200").mkdir()
    (tmp_path / "nvidia-h200" / "changed-answers.json").write_text(json.dumps(report))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert "| foveate | transformers (sdpa) | 0 of 4 |" in tables.changed_answers_table()
    skills = [line.split(" | ")[0] for line in tables.accuracy_on_gpu_table().splitlines()]
    assert skills == ["| skill", "| ---", "| shapes", "| digits", "| all"]

"""`foveate eval`: how many questions a model answers right, and whether graphs or the reference change any answer."""

import dataclasses
import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from foveate.commands.model_choice import ModelOption, model_name
from foveate.commands.output import write_json
from foveate.commands.progress import loading_bar
from foveate.errors import ConfigurationError, OutputError
from foveate.evaluation.predictors import FoveatePredictor, Predictor, TransformersPredictor
from foveate.evaluation.runner import (
    QUESTIONS_PER_SKILL,
    Difference,
    Result,
    as_record,
    compare,
    evaluate,
    wrong_answers,
)
from foveate.evaluation.sheet import write_sheet
from foveate.loading import find_folder, load
from foveate.machine import machine_card

MODES: dict[str, list[bool | None]] = {"auto": [None], "on": [True], "off": [False], "both": [True, False]}


def evaluation(
    model: ModelOption = None,
    graphs: Annotated[str, typer.Option(help="Encoder graphs: auto, on, off, or both to compare.")] = "auto",
    against: Annotated[str | None, typer.Option(help="`transformers` compares with the reference.")] = None,
    limit: Annotated[int, typer.Option(help="Questions of each skill.")] = QUESTIONS_PER_SKILL,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="A folder for the JSON and the sheet of wrong answers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
) -> None:
    """Ask a model the published test questions and mark its answers."""
    if limit < 1:
        raise ConfigurationError(f"limit is {limit}; give at least 1 question of each skill")
    predictors = _predictors(model, graphs, against, device, dtype)
    with loading_bar("questions") as progress:
        results = evaluate(predictors, limit=limit, progress=progress)
    differences = [compare(first, second) for first, second in combinations(results, 2)]
    run = {"model": model_name(model), "device": device, "dtype": dtype, "machine": dataclasses.asdict(machine_card())}
    record = {**run, **as_record(results, differences)}
    if out is not None:
        _save(out, record, results[0])
    if as_json:
        write_json(record)
    else:
        _print(results, differences)


def _predictors(model: str | None, graphs: str, against: str | None, device: str, dtype: str) -> list[Predictor]:
    if graphs not in MODES:
        raise ConfigurationError(f"graphs is {graphs!r}; allowed are auto, on, off and both")
    if against not in (None, "transformers"):
        raise ConfigurationError(f"against is {against!r}; allowed is transformers")
    predictors: list[Predictor] = []
    for mode in MODES[graphs]:
        config = {} if mode is None else {"cudagraph_mm_encoder": mode}
        name = {None: "foveate", True: "foveate, graphs", False: "foveate, eager"}[mode]
        vlm = load(model, device=device, dtype=dtype, compilation_config=config)
        predictors.append(FoveatePredictor(vlm, name))
    if against:
        predictors.append(TransformersPredictor(find_folder(model), vlm.model.device, vlm.model.dtype))
    return predictors


def _save(out: Path, record: Mapping[str, object], first: Result) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        write_sheet(out / "wrong.png", wrong_answers(first))
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; choose another folder") from error


def _print(results: list[Result], differences: list[Difference]) -> None:
    console = Console()
    table = Table("skill", "questions", title="Exact match (ROUGE-L)", title_justify="left")
    scores = {result.predictor: result.scores() for result in results}
    for name in scores:
        table.add_column(name, justify="right")
    first = scores[results[0].predictor]
    for skill, marks in first.items():
        cells = [f"{100 * s[skill].exact_match:.1f} % ({100 * s[skill].rouge_l:.1f})" for s in scores.values()]
        table.add_row(skill, str(marks.questions), *cells)
    console.print(table)
    for difference in differences:
        console.print(
            f"{difference.first} / {difference.second}: {difference.changed_answers} answers changed, largest logit"
            f" difference {difference.largest_logit_difference:.3g}"
        )

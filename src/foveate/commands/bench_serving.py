"""`foveate bench latency` and `foveate bench throughput`: from the bytes of a picture to the words about it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from foveate.bench.serving import row_name
from foveate.bench.serving_question import WAYS, ServingQuestion
from foveate.checkpoints import LAYOUT_NAMES
from foveate.commands.output import write_json, write_text
from foveate.commands.progress import stages_bar
from foveate.errors import ConfigurationError, OutputError

NO_CUDA = "No CUDA here: everything ran kernel by kernel on the CPU. These times say nothing about a GPU."
STAGES = "first, p95: to the first token; next: each further one; all: until all are answered; per s: requests. "
STAGES += "Stages overlap, and those of a round of several share their steps: they do not add up to the whole."

Model = Annotated[str | None, typer.Option(help="A checkpoint folder, or a hub name.")]
Layout = Annotated[
    str | None,
    typer.Option(
        help=f"Random weights of a public layout instead: {', '.join(LAYOUT_NAMES)}.",
        show_default="LFM2.5-VL-450M on CUDA, tiny without",
    ),
]
Sizes = Annotated[str, typer.Option(help="Width x height of drawn JPEGs, in pixels.")]
Pictures = Annotated[Path | None, typer.Option(help="A folder of pictures to ask about instead.")]
OutputTokens = Annotated[str, typer.Option(help="Tokens of each answer, whatever the model says.")]
Concurrency = Annotated[str, typer.Option(help="Requests sent at the same time.")]
Graphs = Annotated[str, typer.Option(help="Encoder graphs: on, off, or both in turn.")]
Rounds = Annotated[int | None, typer.Option(help="Times each row is run.", show_default="10 on CUDA, 3 without")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Config = Annotated[str | None, typer.Option(help="JSON with the encoder graphs' switches, or @FILE.")]
Out = Annotated[Path | None, typer.Option(help="A folder for the JSON and the drawing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the table.")]


def latency(
    model: Model = None,
    layout: Layout = None,
    sizes: Sizes = "256x256,512x512,1920x1080",
    pictures: Pictures = None,
    output_tokens: OutputTokens = "1,64",
    graphs: Graphs = "both",
    rounds: Rounds = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    compilation_config: Config = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Time one request at a time: its first token, each further one, the whole answer, and every stage."""
    question = ServingQuestion(
        model, layout, _sizes(sizes), pictures, _counts("output_tokens", output_tokens), (1,), _ways(graphs), rounds,
        device, dtype, compilation_config,
    )  # fmt: skip
    _run(question, "latency", out, as_json)


def throughput(
    model: Model = None,
    layout: Layout = None,
    sizes: Sizes = "512x512",
    pictures: Pictures = None,
    output_tokens: OutputTokens = "64",
    concurrency: Concurrency = "1,8,32",
    graphs: Graphs = "both",
    rounds: Rounds = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    compilation_config: Config = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Time several requests sent at the same time, until the last one is answered; requests and tokens a second."""
    question = ServingQuestion(
        model, layout, _sizes(sizes), pictures, _counts("output_tokens", output_tokens),
        _counts("concurrency", concurrency), _ways(graphs), rounds, device, dtype, compilation_config,
    )  # fmt: skip
    _run(question, "throughput", out, as_json)


def _run(question: ServingQuestion, name: str, out: Path | None, as_json: bool) -> None:
    # Imported here: other commands must not wait for it.
    from foveate.bench.serving_report import serving_report

    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out} cannot be made: {error.strerror}; choose another folder with --out") from error
    with stages_bar() as progress:
        report = serving_report(question, progress)
    notes = [*stage_lines(report), STAGES, *([NO_CUDA] if report["device"] == "cpu" else [])]
    if out is not None:
        notes += _save(out, name, report)
    if as_json:
        write_json({**report, "notes": notes})
        return
    Console().print(result_table(report))
    write_text("".join(f"{note}\n" for note in notes))


def result_table(report: Mapping[str, Any]) -> Table:
    """Return the medians of every row and way, and the 95th percentile of the first token."""
    table = Table(title=f"{report['model']}, {report['dtype']}, {report['device']}", title_justify="left")
    for name in ("milliseconds, median", "first", "p95", "next", "all", "per s"):
        table.add_column(name, justify="left" if name.startswith("milli") else "right", no_wrap=True)
    for row in report["rows"]:
        table.add_row(row_name(row))
        for way, told in row["ways"].items():
            first, between = told["first_token_ms"], told["between_tokens_ms"]
            table.add_row(
                f"  {way}",
                f"{first['median_ms']:.2f}",
                f"{first['p95_ms']:.2f}",
                f"{between['median_ms']:.3f}" if between else "",
                f"{told['round_ms']['median_ms']:.2f}",
                f"{told['requests_per_s']:.2f}",
            )
        table.add_section()
    return table


def stage_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the stages of each row in milliseconds, a line each."""
    return [
        f"{row_name(row)}, {way}, ms: "
        + ", ".join(f"{stage} {value:.2f}" for stage, value in told["stages_ms"].items())
        for row in report["rows"]
        for way, told in row["ways"].items()
    ]


def _save(out: Path, name: str, report: Mapping[str, Any]) -> list[str]:
    """Write the JSON and the drawing; returns what is to be said about it."""
    path = out / f"{name}.json"
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; choose another folder with --out") from error
    try:
        from foveate.bench.serving_plots import draw
    except ModuleNotFoundError as error:
        return [f"written: {path}; no drawing: {error.name} is not installed (pip install 'foveate[eval]')"]
    try:
        drawing = draw(report, out / f"{name}.svg")
    except OSError as error:
        raise OutputError(
            f"{out / f'{name}.svg'} cannot be written: {error.strerror}; choose another folder with --out"
        ) from error
    return [f"written: {path}, {drawing}"]


def _sizes(text: str) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((int(width), int(height)) for width, height in (word.split("x") for word in _words(text)))
    except ValueError:
        raise ConfigurationError(f"sizes is {text!r}; give width x height, such as 512x512,1920x1080") from None


def _counts(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in _words(text))
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; give whole numbers such as 1,64") from None


def _ways(graphs: str) -> tuple[str, ...]:
    chosen = {"on": ("graph",), "off": ("eager",), "both": WAYS}.get(graphs)
    if chosen is None:
        raise ConfigurationError(f"graphs is {graphs!r}; give on, off or both")
    return chosen


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]

"""`foveate bench encoder`: how fast the image encoder is on this machine, and beside whom."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from foveate.bench.encoder_question import WAYS, EncoderQuestion
from foveate.checkpoints import LAYOUT_NAMES
from foveate.commands.output import write_json, write_text
from foveate.commands.progress import stages_bar
from foveate.errors import ConfigurationError, OutputError

DEFAULTS = EncoderQuestion()
WRONG_EXIT_CODE = 3
NO_CUDA = (
    "No CUDA here: plans ran kernel by kernel over the graphs' padded buffers, at small sizes. These times say nothing"
    " about a GPU."
)


def encoder(
    model: Annotated[str | None, typer.Option(help="A checkpoint folder, or a hub name.")] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            help=f"Random weights of a public layout instead: {', '.join(LAYOUT_NAMES)}.",
            show_default="LFM2.5-VL-450M on CUDA, tiny without",
        ),
    ] = None,
    ways: Annotated[str, typer.Option("--with", help=f"Whom to compare, of {', '.join(WAYS)}.")] = ",".join(
        DEFAULTS.ways
    ),
    tiles: Annotated[
        str | None,
        typer.Option(help="Full tiles of each batch, such as 1,5,11.", show_default="as in docs/benchmarks.md"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Timed calls of each.", show_default="30 on CUDA, 3 without")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = DEFAULTS.device,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = DEFAULTS.dtype,
    compilation_config: Annotated[
        str | None, typer.Option(help="JSON with the encoder graphs' switches, or @FILE.")
    ] = None,
    vllm_python: Annotated[str | None, typer.Option(help="A Python that has vLLM, if it is not this one.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the JSON and the drawings.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the table.")] = False,
) -> None:
    """Time the image encoder: every way is checked against our eager features first, then all are timed in turn.

    Exit code 3 if any features are wrong.
    """
    # Imported here: `foveate describe` must work where the graph runtime has been taken out.
    from foveate.bench.encoder_report import encoder_report

    question = EncoderQuestion(
        model, layout, tuple(_words(ways)), _counts(tiles), rounds, device, dtype, compilation_config, vllm_python
    )
    if out is not None:
        _make(out)
    with stages_bar() as progress:
        report = encoder_report(question, progress)
    notes = [*_notes(report), *(_save(out, report) if out is not None else [])]
    if as_json:
        write_json({**report, "notes": notes})
    else:
        Console().print(result_table(report))
        write_text("".join(f"{note}\n" for note in notes))
    if wrong_results(report):
        raise typer.Exit(WRONG_EXIT_CODE)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _counts(tiles: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in _words(tiles or ""))
    except ValueError:
        raise ConfigurationError(f"tiles is {tiles!r}; give whole numbers such as 1,5,11") from None


def result_table(report: Mapping[str, Any]) -> Table:
    """Return the times of every way on every row, below the least by the ceilings."""
    table = Table(title=f"{report['model']}, {report['dtype']}, {report['device']}", title_justify="left")
    for name in ("batch", "median ms", "p95 ms", ": graph", "off by"):
        table.add_column(name, justify="left" if name == "batch" else "right", no_wrap=True)
    for row in report["rows"]:
        table.add_row(row["name"])
        table.add_row("  least possible", f"{row['floor_ms']:.3f}")
        for way, result in row["ways"].items():
            ratio = "" if result["ratio"] is None else f"{result['ratio']:.2f}"
            off = "" if way == "eager" else f"{'' if result['is_right'] else 'WRONG '}{_error(result)}"
            table.add_row(f"  {way}", f"{result['median_ms']:.3f}", f"{result['p95_ms']:.3f}", ratio, off)
        table.add_section()
    return table


def _error(result: Mapping[str, Any]) -> str:
    return "no number" if result["error"] is None else f"{result['error']:.1e}"


def wrong_results(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for everything whose features are not ours."""
    bound = report["largest_error"]
    return [
        f"WRONG: {way}, {row['name']}: features are off by {_error(result)}; allowed is {bound:g}"
        for row in report["rows"]
        for way, result in row["ways"].items()
        if not result["is_right"]
    ]


def _notes(report: Mapping[str, Any]) -> list[str]:
    ceilings, notes = report["ceilings"], [f"{name}: {told}" for name, told in report["ways"].items()]
    notes.append(
        f"ceilings: {ceilings['copy_terabytes_per_s']:g} TB/s copied, {ceilings['teraflops_per_s']:g} TFLOP/s in"
        f" {ceilings['dtype']} products"
    )
    notes += [f"left out: {way}: {reason}" for way, reason in report["left_out"].items()]
    if report["device"] == "cpu":
        notes.append(NO_CUDA)
    return [*notes, *wrong_results(report)]


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} cannot be made: {error.strerror}; choose another folder with --out") from error


def _save(out: Path, report: Mapping[str, Any]) -> list[str]:
    """Write the JSON and the drawings; returns what is to be said about it."""
    try:
        (out / "encoder.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; choose another folder with --out") from error
    try:
        from foveate.bench.plots import draw
    except ModuleNotFoundError as error:
        return [
            f"written: {out / 'encoder.json'}; no drawings: {error.name} is not installed (pip install 'foveate[eval]')"
        ]
    files = draw(report, out)
    return [f"written: {', '.join(str(file) for file in (out / 'encoder.json', *files))}"]

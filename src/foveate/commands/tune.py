"""`foveate tune`: encoder graphs for the sizes of somebody's own pictures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from foveate.commands.model_choice import ModelOption
from foveate.commands.output import write_text
from foveate.commands.trace import read_trace
from foveate.errors import ConfigurationError, OutputError
from foveate.loading import choose_device, find_folder, load
from foveate.models.lfm2_vl.config import read_model_config

if TYPE_CHECKING:  # `foveate describe` must work where the graph runtime has been taken out.
    from foveate.engine.tuning import TunedGraphs

MOST_GRAPHS = 24
FIXED = (
    "No CUDA here: nothing was captured. Milliseconds come from a fixed table, about those of LFM2.5-VL-3B on an H200,"
    " and memory is estimated. Run this again on the card that serves to have both measured."
)


def tune(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="Lines of `width height [count]`, as text, CSV or JSONL; or a folder."),
    ],
    model: ModelOption = None,
    graphs: Annotated[int, typer.Option(help="Most graphs.")] = MOST_GRAPHS,
    memory_mb: Annotated[float | None, typer.Option(help="Most memory of the graphs, in MB.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where the switches go.")] = Path("encoder-graphs.json"),
) -> None:
    """Choose the encoder graphs for pictures of your own sizes, and write them for --compilation-config @FILE."""
    from foveate.engine.tuning import BudgetTuning
    from foveate.graphs.settings import MOST_BUDGETS

    if not 1 <= graphs <= MOST_BUDGETS:
        raise ConfigurationError(f"graphs is {graphs}; give 1 to {MOST_BUDGETS}")
    sizes, config, chosen = read_trace(trace), read_model_config(find_folder(model)), choose_device(device)
    on_cuda = chosen.type == "cuda"
    vlm = load(model, device=device, compilation_config={"cudagraph_mm_encoder": False}) if on_cuda else None
    tuning = BudgetTuning(sizes, config, vlm.model if vlm else None)
    default = tuning.default()
    tuned = tuning.tuned(default, most_graphs=graphs, memory_mb=memory_mb)
    _write(out, {"encoder_cudagraph_token_budgets": list(tuned.budgets)})
    Console().print(_table(default, tuned, pictures=sizes.total() - tuning.refused, is_measured=on_cuda))
    if tuning.refused:
        write_text(f"{tuning.refused} pictures are too thin for this model and were left out.\n")
    if not on_cuda:
        write_text(f"{FIXED}\n")
    write_text(f"Use it: --compilation-config @{out}\n")


def _write(out: Path, switches: dict[str, list[int]]) -> None:
    try:
        out.write_text(json.dumps(switches) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; choose another file with --out") from error


def _table(default: "TunedGraphs", tuned: "TunedGraphs", *, pictures: int, is_measured: bool) -> Table:
    table = Table("", "before", "after", title=f"{pictures} pictures, one at a time", title_justify="left")
    source = "measured" if is_measured else "estimated"
    rows = {
        "graphs": [str(len(graphs.budgets)) for graphs in (default, tuned)],
        "largest, tokens": [str(graphs.budgets[-1]) for graphs in (default, tuned)],
        f"memory, {source}": [f"{graphs.memory_bytes / 1e6:.0f} MB" for graphs in (default, tuned)],
        "padded rows": [f"{100 * graphs.expectation.padded_share:.1f} %" for graphs in (default, tuned)],
        "mean encoder time": [f"{graphs.expectation.ms_per_item:.2f} ms" for graphs in (default, tuned)],
    }
    for name, (before, after) in rows.items():
        table.add_row(name, before, after)
    return table

"""Draws what the serving benchmarks found, as SVG. Needs matplotlib, which comes with the extra `eval`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from foveate.bench.plots import COLOURS, LABELS, blank, save
from foveate.bench.serving import row_name

FIRST, REST = "to the first token", "from there to the last"


def draw(report: Mapping[str, Any], path: Path) -> Path:
    """Draw a report to a file, and return it."""
    save(bars(report), path)
    return path


def bars(report: Mapping[str, Any]) -> Figure:
    """A bar for every row and way: up to the first token's median, and behind it, paler, to the end of the round."""
    rows = [(row, way, told) for row in report["rows"] for way, told in row["ways"].items()]
    figure, drawings = blank([report["model"]], height=0.9 + 0.28 * len(rows))
    axes = drawings[report["model"]]
    for at, (_, way, told) in enumerate(rows):
        first, whole = told["first_token_ms"]["median_ms"], told["round_ms"]["median_ms"]
        axes.barh(at, first, color=COLOURS[way], height=0.7)
        axes.barh(at, max(whole - first, 0), left=first, color=COLOURS[way], alpha=0.35, height=0.7)
        axes.text(whole, at, f" {first:.1f} / {whole:.1f}", va="center", fontsize=8)
    names = [f"{row_name(row)}, {LABELS.get(way, way)}" for row, way, _ in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(f"milliseconds, median: dark {FIRST}, pale {REST}")
    return figure

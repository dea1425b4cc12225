"""Draws what the encoder benchmark found, as SVG. Needs matplotlib, which comes with the extra `eval`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Row = Mapping[str, Any]
"""A row of a report: `tiles`, `tokens`, `budgets`, `tiles_on_graphs`, and for times `floor_ms` and `ways`."""

COLOURS = {
    "graph": "#1f6feb",
    "eager": "#8db7f5",
    "transformers": "#bf5b04",
    "transformers-compile": "#e8a15f",
    "vllm eager": "#b9a6d9",
    "vllm graph": "#8355c9",
    "vllm tuned": "#4b2a85",
}
LABELS = {"graph": "Foveate graph", "eager": "Foveate eager"}
"""Where a drawing's name for a way is another than a report's."""
PLACES = {"one graph": "#1f6feb", "several graphs": "#8db7f5", "eager": "#bf5b04"}
"""Where a plan sends a batch."""
GREY = "#555555"


def save(figure: Figure, path: Path) -> None:
    """Write an SVG: text stays text, and the same figure gives the same file."""
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "foveate", "font.family": "sans-serif"}
    with mpl.rc_context(style):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def blank(parts: Sequence[str], height: float = 3.4) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a drawing for each part, two in a row, each with its title."""
    columns = min(len(parts), 2)
    lines = -(-len(parts) // columns)
    figure = Figure(figsize=(9.2 if columns == 2 else 7.4, height * lines), layout="constrained")
    drawings = list(figure.subplots(lines, columns, squeeze=False).flat)[: len(parts)]
    for part, axes in zip(parts, drawings, strict=True):
        axes.set_title(part, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, dict(zip(parts, drawings, strict=True))


def times(sizes: Mapping[str, Sequence[Row]]) -> Figure:
    """Milliseconds by image tokens, a line each way, and the least by the measured ceilings as a dashed line."""
    figure, drawings = blank(list(sizes))
    for size, rows in sizes.items():
        axes, ordered = drawings[size], sorted(rows, key=lambda row: row["tokens"])
        tokens = [row["tokens"] for row in ordered]
        for way, colour in COLOURS.items():
            points = [(row["tokens"], row["ways"][way]["median_ms"]) for row in ordered if way in row["ways"]]
            if points:
                axes.plot(
                    *zip(*points, strict=True), "o-", color=colour, label=LABELS.get(way, way), markersize=3.5, lw=1.5
                )
        floors = [row["floor_ms"] for row in ordered]
        axes.plot(tokens, floors, "--", color=GREY, lw=1.2, label="least, by this device's ceilings")
        axes.set_xlabel("image tokens in the batch")
        axes.set_ylabel("milliseconds, median")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    first = next(iter(drawings.values()))
    figure.legend(*first.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def padding(sizes: Mapping[str, Sequence[Row]]) -> Figure:
    """Share of padded rows among the rows replayed for each batch that ran on graphs."""
    figure, drawings = blank(list(sizes), height=2.8)
    for size, rows in sizes.items():
        axes = drawings[size]
        points = [(row["tokens"], 100 * share) for row in rows if (share := padded_share(row)) is not None]
        if points:
            tokens, shares = zip(*points, strict=True)
            axes.vlines(tokens, 0, shares, color=PLACES["one graph"], lw=1)
            axes.plot(tokens, shares, "o", color=PLACES["one graph"], markersize=3.5)
        axes.set_xlabel("image tokens in the batch")
        axes.set_ylabel("padded rows, %")
        axes.set_ylim(0, max([5.0, *(1.15 * share for _, share in points)]))
        axes.set_xlim(left=0)
    return figure


def padded_share(row: Row) -> float | None:
    """Return the padding of a batch's replays; None where a part of it, or all, ran eagerly."""
    budgets = row["budgets"]
    if not budgets or None in budgets:
        return None
    return (sum(budgets) - row["tokens"]) / sum(budgets)


def places(sizes: Mapping[str, Sequence[Row]]) -> Figure:
    """For each number of tiles, the share of batches that went to one graph, to several, or to eager execution."""
    figure, drawings = blank(list(sizes), height=2.8)
    for size, rows in sizes.items():
        axes = drawings[size]
        counts = sorted({row["tiles"] for row in rows})
        at, below = range(len(counts)), [0.0] * len(counts)
        for place, colour in PLACES.items():
            shares = [_share(place, [row for row in rows if row["tiles"] == count]) for count in counts]
            axes.bar(at, shares, 0.8, bottom=below, color=colour, label=place)
            below = [low + share for low, share in zip(below, shares, strict=True)]
        every = max(1, len(counts) // 10)
        axes.set_xticks(list(at)[::every], [str(count) for count in counts[::every]])
        axes.set_xlabel("tiles in the batch")
        axes.set_ylabel("batches, %")
    first = next(iter(drawings.values()))
    figure.legend(*first.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def place_of(row: Row) -> str:
    """Return which of `PLACES` a batch went to; one that ran partly eagerly counts as eager."""
    budgets = row["budgets"]
    if not budgets or None in budgets:
        return "eager"
    return "one graph" if len(budgets) == 1 else "several graphs"


def _share(place: str, rows: Sequence[Row]) -> float:
    return 100 * sum(place_of(row) == place for row in rows) / len(rows)


def draw(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all that a report holds into a folder, and return the files."""
    sizes = {report["model"]: report["rows"]}
    figures = {"times.svg": times(sizes)}
    if report["graphs"]:
        figures |= {"padding.svg": padding(sizes), "places.svg": places(sizes)}
    for name, figure in figures.items():
        save(figure, folder / name)
    return [folder / name for name in figures]

"""Draw the pictures of the documents from the committed results.

    python benchmarks/pictures.py

Needs matplotlib, which comes with the extra `eval`.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import SIZES
from matplotlib.figure import Figure
from tables import ROOT, load_of, read

from foveate.bench import plots
from foveate.bench.batches import published_rows
from foveate.bench.ceilings import Ceilings
from foveate.bench.serving import row_name
from foveate.bench.work import floor_ms
from foveate.checkpoints import layout
from foveate.checkpoints.writing import write_settings
from foveate.models.lfm2_vl.config import ModelConfig, read_model_config

PICTURES = ROOT / "docs" / "pictures"
SIZE_COLOURS = {"450M": "#1f6feb", "3B": "#bf5b04"}
LIMIT = 1.05
BF16_BYTES = 2
PIXEL_WAYS = {
    "bytes to features": "all on the GPU",
    "bytes to features, Pillow decodes": "Pillow decodes",
    "bytes to features, pixels on the CPU": "pixels on the CPU",
}


def layout_config(name: str) -> ModelConfig:
    """Return the configuration of a public layout."""
    with tempfile.TemporaryDirectory() as folder:
        write_settings(Path(folder), layout(name), "bfloat16")
        return read_model_config(Path(folder))


def encoder_rows(size: str) -> list[dict[str, Any]]:
    """Return the committed encoder results of one size, ours and vLLM's, as rows of a report."""
    ours, peer, config = read("encoder"), read("vllm-encoder"), layout_config(SIZES[size])
    top = Ceilings(ours["ceilings"]["copy_terabytes_per_s"], ours["ceilings"]["bf16_teraflops_per_s"], "bfloat16")
    rows = []
    for row in published_rows():
        measured, theirs = ours["sizes"][size]["rows"][row.name], peer["sizes"][size]["rows"][row.name]
        ways = {way: measured[way] for way in ("eager", "graph")}
        ways |= {f"vllm {mode}": times for mode, times in theirs.items()}
        floor = floor_ms(config, row.tiles, top, BF16_BYTES)
        rows.append({"tokens": row.tokens(config), "floor_ms": floor, "ways": ways})
    return rows


def encoder_times() -> Figure:
    """Our encoder and vLLM's by image tokens."""
    return plots.times({size: encoder_rows(size) for size in SIZES})


def sampled_batches() -> dict[str, list[dict[str, Any]]]:
    """Return the sampled batches of 1 to 40 tiles of each size."""
    return {size: result["batches"] for size, result in read("never-slower")["sizes"].items()}


def never_slower() -> Figure:
    """Ratio of each batch by its tiles; a hollow mark is a batch for which the planner chose to run eagerly."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.axhspan(1.0, LIMIT, color="#00000010", lw=0)
    axes.axhline(1.0, color="#444444", lw=1)
    for size, sampled in sampled_batches().items():
        on_graphs = [batch for batch in sampled if batch["tiles_on_graphs"]]
        eagerly = [batch for batch in sampled if not batch["tiles_on_graphs"]]
        for batches, filled in ((on_graphs, True), (eagerly, False)):
            axes.scatter(
                [batch["tiles"] for batch in batches],
                [batch["ratio"] for batch in batches],
                s=18,
                facecolors=SIZE_COLOURS[size] if filled else "none",
                edgecolors=SIZE_COLOURS[size],
                label=f"{size}, {'graphs' if filled else 'eager, as cheaper'}" if batches else None,
            )
    axes.set_xlabel("tiles in the batch")
    axes.set_ylabel("time with graphs : time without")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def pixels() -> Figure:
    """From JPEG bytes to image features: with all pixel work on the GPU, and with some or all of it on the CPU."""
    sizes = read("pixels")["sizes"]
    rows = {
        f"{size}, {picture} pixels": sizes[size]["rows"][f"{picture} 4:2:0"]["times"]
        for size in sizes
        for picture in ("512x512", "1920x1080")
    }
    figure, drawings = plots.blank(list(rows), height=1.8)
    for part, times in rows.items():
        axes, medians = drawings[part], [times[way]["median_ms"] for way in PIXEL_WAYS]
        bars = axes.barh(list(PIXEL_WAYS.values()), medians, 0.7, color=[plots.COLOURS["graph"], *["#8db7f5"] * 2])
        axes.bar_label(bars, fmt=" %.1f", fontsize=9)
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds, median")
        axes.margins(x=0.18)
    return figure


def requests() -> Figure:
    """Whole requests beside the better of vLLM's modes, where both were measured."""
    ours, theirs = read("engine")["sizes"], read("vllm-serving")["sizes"]
    figure, drawings = plots.blank(list(ours), height=3.6)
    for size, measured in ours.items():
        axes = drawings[size]
        peers = {load_of(row): min(row["round_ms"].values()) for row in theirs[size]["rows"]}
        rows = [row for row in measured["rows"] if load_of(row) in peers]
        times = [row["ways"]["graph"]["round_ms"]["median_ms"] for row in rows]
        at = range(len(rows))
        ways = (
            ("vLLM, the better mode", [peers[load_of(row)] for row in rows], "vllm graph"),
            ("Foveate", times, "graph"),
        )
        for shift, (label, values, colour) in zip((-0.2, 0.2), ways, strict=True):
            bars = axes.barh([each + shift for each in at], values, 0.38, color=plots.COLOURS[colour], label=label)
            axes.bar_label(bars, fmt=" %.0f", fontsize=8)
        axes.set_yticks(list(at), [row_name(row) for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel("milliseconds until all are answered")
    first = next(iter(drawings.values()))
    figure.legend(*first.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2, fontsize=9)
    return figure


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "encoder-times": encoder_times,
    "never-slower": never_slower,
    "padding": lambda: plots.padding(sampled_batches()),
    "places": lambda: plots.places(sampled_batches()),
    "pixels": pixels,
    "requests": requests,
}


def main() -> None:
    """Draw them all."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PICTURES.mkdir(exist_ok=True)
    for name, made in DRAWINGS.items():
        plots.save(made(), PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()

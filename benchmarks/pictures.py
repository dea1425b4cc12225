"""Draw the pictures of the documents from the committed results.

    python benchmarks/pictures.py

Needs matplotlib, which comes with the extra `eval`.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "nvidia-h200"
PICTURES = ROOT / "docs" / "pictures"
COLOURS = {"450M": "#1f6feb", "3B": "#bf5b04"}
LIMIT = 1.05


def never_slower(report: dict[str, Any]) -> plt.Figure:
    """Ratio of each batch by its tiles; a hollow mark is a batch for which the planner chose to run eagerly."""
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    axes.axhspan(1.0, LIMIT, color="#00000010", lw=0)
    axes.axhline(1.0, color="#444444", lw=1)
    for size, result in report["sizes"].items():
        on_graphs = [batch for batch in result["batches"] if batch["tiles_on_graphs"]]
        eagerly = [batch for batch in result["batches"] if not batch["tiles_on_graphs"]]
        for batches, filled in ((on_graphs, True), (eagerly, False)):
            axes.scatter(
                [batch["tiles"] for batch in batches],
                [batch["ratio"] for batch in batches],
                s=18,
                facecolors=COLOURS[size] if filled else "none",
                edgecolors=COLOURS[size],
                label=f"{size}, {'graphs' if filled else 'eager, as cheaper'}" if batches else None,
            )
    axes.set_xlabel("tiles in the batch")
    axes.set_ylabel("time with graphs : time without")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    """Draw them all."""
    # Text stays text, and the same results give the same file.
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "foveate", "font.family": "sans-serif"})
    report = json.loads((RESULTS / "never-slower.json").read_text(encoding="utf-8"))
    PICTURES.mkdir(exist_ok=True)
    never_slower(report).savefig(PICTURES / "never-slower.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()

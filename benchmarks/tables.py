"""Write the tables of docs/benchmarks.md from the committed results, so that no figure is typed by hand.

python benchmarks/tables.py            # rewrites the tables
python benchmarks/tables.py --check    # exits with 1 when the document is not what the results say
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "nvidia-h200"
DOCUMENT = ROOT / "docs" / "benchmarks.md"


def read(name: str) -> dict[str, Any]:
    """Return one committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def encoder_table() -> str:
    """Encoder time by tiles, ours and vLLM's, and how many times sooner we are than vLLM's best."""
    ours, peer = read("encoder"), read("vllm-encoder")
    lines = [
        "| size | tiles | vLLM eager | vLLM graph | vLLM tuned | Foveate eager | Foveate graph | best vLLM : graph |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, measured in ours["sizes"].items():
        for row, times in measured["rows"].items():
            theirs = [peer["sizes"][size]["rows"][row][mode]["median_ms"] for mode in ("eager", "graph", "tuned")]
            graph = times["graph"]["median_ms"]
            cells = [*(f"{value:.2f}" for value in theirs), f"{times['eager']['median_ms']:.2f}", f"**{graph:.2f}**"]
            lines.append(f"| {size} | {row} | {' | '.join(cells)} | {min(theirs) / graph:.2f} |")
    return "\n".join(lines)


def memory_table() -> str:
    """Memory and start-up of the graphs."""
    lines = [
        "| size | graphs | shared buffers | shared pool | capture and check | build with random weights |",
        "|---|---|---|---|---|---|",
    ]
    for size, measured in read("encoder")["sizes"].items():
        cells = [str(len(measured["graphs"])), f"{measured['buffer_mb']:.0f} MB", f"{measured['pool_mb']:.0f} MB"]
        cells += [f"{measured['capture_and_check_s']:.1f} s", f"{measured['build_s']:.1f} s"]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def padding_table() -> str:
    """What padding costs."""
    names = ("64 tokens in their own budget", "64 tokens in 4096", "4096 tokens in 4096")
    lines = [f"| size | {' | '.join(names)} |", "|---|---|---|---|"]
    for size, measured in read("encoder")["sizes"].items():
        cells = [f"{measured['padding'][name]['median_ms']:.2f} ms" for name in names]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parity_table() -> str:
    """Errors against transformers in float32."""
    lines = [
        "| size | numbers | Foveate, bfloat16 | transformers, bfloat16 | within twice |",
        "|---|---|---|---|---|",
    ]
    for size, measured in read("parity")["sizes"].items():
        for key in ("features", "logits"):
            report = measured["bfloat16"][key]
            ours, theirs = (", ".join(f"{value:.4f}" for value in report[who]) for who in ("ours", "transformers"))
            lines.append(f"| {size} | {key} | {ours} | {theirs} | {'yes' if report['within_twice'] else '**no**'} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "encoder": encoder_table,
    "memory": memory_table,
    "padding": padding_table,
    "parity": parity_table,
}


def filled(text: str) -> str:
    """Return the document with every table between its markers made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        table = make().replace("\\", r"\\")
        text = pattern.sub(rf"\g<1>{table}\g<2>", text)
    return text


def main() -> int:
    """Rewrite or check the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = DOCUMENT.read_text(encoding="utf-8")
    if parser.parse_args().check:
        return 0 if filled(text) == text else 1
    DOCUMENT.write_text(filled(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

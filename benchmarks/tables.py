"""Write the tables of the documents from the committed results, so that no figure is typed by hand.

python benchmarks/tables.py            # rewrites the tables
python benchmarks/tables.py --check    # exits with 1 when a document is not what the results say
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = tuple(
    ROOT / name for name in ("README.md", "docs/benchmarks.md", "docs/accuracy.md", "src/foveate/demo/README.md")
)


def read(name: str, machine: str = "nvidia-h200") -> dict[str, Any]:
    """Return one committed result."""
    return json.loads((RESULTS / machine / f"{name}.json").read_text(encoding="utf-8"))


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


def accuracy_table() -> str:
    """Accuracy by skill in float32 on a CPU, as `foveate eval` marks it."""
    scores = read("evaluation-300", "cpu")["scores"]
    heads = [f"{name}, {mark}" for name in scores for mark in ("exact match", "ROUGE-L")]
    rows = [["skill", "questions", *heads], ["---"] * (2 + len(heads))]
    for skill, first in next(iter(scores.values())).items():
        marks = [
            f"{100 * score[skill][mark]:.1f} %" for score in scores.values() for mark in ("exact_match", "rouge_l")
        ]
        rows.append([skill, str(first["questions"]), *marks])
    return table(rows)


def accuracy_on_gpu_table() -> str:
    """Exact match by skill in bfloat16 on a GPU, of each who answered."""
    scores = read("changed-answers")["scores"]
    rows = [["skill", "questions", *scores], ["---"] * (2 + len(scores))]
    for skill, first in next(iter(scores.values())).items():
        marks = [f"{100 * score[skill]['exact_match']:.1f} %" for score in scores.values()]
        rows.append([skill, str(first["questions"]), *marks])
    return table(rows)


def changed_answers_table() -> str:
    """Answers that differ between each two who answered the same questions on a GPU."""
    return differences_table(read("changed-answers"))


def changed_answers_on_cpu_table() -> str:
    """The same on a CPU in float32."""
    return differences_table(read("evaluation", "cpu"))


def differences_table(report: dict[str, Any]) -> str:
    """Answers that differ between each two who answered the same questions."""
    questions = next(iter(report["scores"].values()))["all"]["questions"]
    rows = [["between", "and", "answers changed", "largest difference of a first score"], ["---"] * 4]
    for pair in report["differences"]:
        changed = f"{pair['changed_answers']} of {questions}"
        rows.append([pair["first"], pair["second"], changed, f"{pair['largest_logit_difference']:.3g}"])
    return table(rows)


def never_slower_table() -> str:
    """Graphs against eager over sampled batches, and what the start takes."""
    heads = ["size", "batches", "median", "p95", "worst", "tiles on graphs", "of up to 11 tiles", "padded rows"]
    rows = [[*heads, "first start", "second start"], ["---"] * (len(heads) + 2)]
    for size, measured in read("never-slower")["sizes"].items():
        summary = measured["summary"]
        ratios = [f"{summary[name]:.3f}" for name in ("median_ratio", "p95_ratio", "worst_ratio")]
        names = ("share_on_graphs", "share_on_graphs_up_to_11_tiles")
        shares = [f"{100 * share:.1f} %" for share in (*map(summary.get, names), measured["trace_padded_share"])]
        starts = [f"{measured[name]['total_s']:.1f} s" for name in ("first_start", "second_start")]
        rows.append([size, str(len(measured["batches"])), *ratios, *shares, *starts])
    return table(rows)


def pixels_table() -> str:
    """From the bytes of a JPEG to its image features, stage by stage and the other ways."""
    stages = ("decode", "pixels", "encode", "bytes to features")
    others = ("bytes to features, Pillow decodes", "bytes to features, pixels on the CPU")
    rows = [["size", "picture", *stages, "Pillow decodes", "pixels on the CPU"], ["---"] * 8]
    for size, measured in read("pixels")["sizes"].items():
        for picture, row in measured["rows"].items():
            cells = [f"{row['times'][name]['median_ms']:.2f}" for name in (*stages, *others)]
            cells[3] = f"**{cells[3]}**"
            rows.append([size, picture, *cells])
    return table(rows)


def serving_table() -> str:
    """Whole requests, ours and vLLM's, from the first one sent to the last token of the last one."""
    heads = ["size", "pictures", "tokens", "at once", "vLLM eager", "vLLM graph", "Foveate eager", "Foveate graph"]
    rows = [[*heads, "first words", "vLLM : Foveate"], ["---"] * (len(heads) + 2)]
    peers = read("vllm-serving")["sizes"]
    for size, measured in read("engine")["sizes"].items():
        for row in measured["rows"]:
            peer = next((each["round_ms"] for each in peers[size]["rows"] if load_of(each) == load_of(row)), {})
            graph = min((peer[mode] for mode in ("graph", "reference") if mode in peer), default=None)
            theirs = [f"{time:.0f}" if time else "" for time in (peer.get("eager"), graph)]
            ours = [f"{row['ways'][way]['round_ms']['median_ms']:.1f}" for way in ("eager", "graph")]
            first = f"{row['ways']['graph']['first_token_ms']['median_ms']:.1f}"
            gain = f"{min(peer.values()) / row['ways']['graph']['round_ms']['median_ms']:.1f}" if peer else ""
            load = [row["pictures"], str(row["output_tokens"]), str(row["at_once"])]
            rows.append([size, *load, *theirs, ours[0], f"**{ours[1]}**", first, gain])
    return table(rows)


def first_words_table() -> str:
    """One picture and one token, alone: ours, and the better of vLLM's modes."""
    rows = [["model", "picture", "vLLM, ms", "Foveate, ms", "times as soon"], ["---"] * 5]
    peers = read("vllm-serving")["sizes"]
    for size, measured in read("engine")["sizes"].items():
        theirs = {load_of(row): min(row["round_ms"].values()) for row in peers[size]["rows"]}
        for row in measured["rows"]:
            if load_of(row)[1:] == (1, 1):
                best, ours = theirs[load_of(row)], row["ways"]["graph"]["round_ms"]["median_ms"]
                cells = [f"{best:.0f}", f"**{ours:.1f}**", f"{best / ours:.1f}"]
                rows.append([f"LFM2.5-VL-{size}", row["pictures"], *cells])
    return table(rows)


def load_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells the loads of whole requests apart."""
    return row["pictures"], row["output_tokens"], row["at_once"]


def stages_table() -> str:
    """Milliseconds of each stage of a request alone, with encoder graphs."""
    stages = ("decode_images", "pixels", "prompt", "encode", "prefill")
    rows = [["size", "pictures", *stages, "first words"], ["---"] * (len(stages) + 3)]
    for size, measured in read("engine")["sizes"].items():
        for row in measured["rows"]:
            if (row["output_tokens"], row["at_once"]) == (1, 1):
                told = row["ways"]["graph"]
                cells = [f"{told['stages_ms'][stage]:.2f}" for stage in stages]
                rows.append([size, row["pictures"], *cells, f"**{told['first_token_ms']['median_ms']:.2f}**"])
    return table(rows)


def steps_table() -> str:
    """Milliseconds of a captured decode step on the device, by batch size and kind of sampling."""
    kinds = ("greedy", "drawn", "filtered")
    rows = [["size", "answers at once", *kinds], ["---"] * 5]
    for size, measured in read("engine")["sizes"].items():
        counts = dict.fromkeys(name.split(" ")[0] for name in measured["steps"])
        for count in counts:
            times = [measured["steps"][f"{count} at once, {kind}"]["median_ms"] for kind in kinds]
            rows.append([size, count, *(f"{value:.2f}" for value in times)])
    return table(rows)


def reference_setting_table() -> str:
    """The setting of the pull request that brought encoder graphs for LFM2-VL."""
    heads = ["pictures", "tokens", "at once", "engine", "eager, ms", "graph, ms", "eager : graph"]
    rows = [heads, ["---"] * len(heads)]
    peers = {load_of(row): row["round_ms"] for row in read("vllm-serving")["sizes"]["3B"]["rows"]}
    for row in read("engine")["sizes"]["3B"]["reference_setting"]:
        load = [row["pictures"], str(row["output_tokens"]), str(row["at_once"])]
        ours = {way: row["ways"][way]["round_ms"]["median_ms"] for way in ("eager", "graph")}
        theirs = {"eager": peers[load_of(row)]["eager"], "graph": peers[load_of(row)]["reference"]}
        for engine, times in (("Foveate", ours), ("vLLM", theirs)):
            ratio = times["eager"] / times["graph"]
            rows.append([*load, engine, f"{times['eager']:.0f}", f"{times['graph']:.0f}", f"{ratio:.3f}"])
    return table(rows)


def ways_table() -> str:
    """The encoder in other hands on the same card: `foveate bench encoder` with transformers, plain and compiled."""
    ways = ("transformers", "transformers-compile", "eager", "graph")
    rows = [
        ["size", "tiles", "transformers", "torch.compile", "Foveate eager", "Foveate graph", "best of theirs : graph"]
    ]
    rows.append(["---"] * len(rows[0]))
    for size in ("450M", "3B"):
        for row in read(f"bench-encoder-{size}")["rows"]:
            times = [row["ways"][way]["median_ms"] for way in ways]
            cells = [*(f"{time:.2f}" for time in times[:3]), f"**{times[3]:.2f}**"]
            rows.append([size, row["name"], *cells, f"{min(times[:2]) / times[3]:.2f}"])
    return table(rows)


def threads_table() -> str:
    """Requests at once, by the threads that prepare them and the length of a thread's turn."""
    heads = ["threads that prepare", "a turn, ms", "all answered, ms", "median first words, ms"]
    parts = {
        "admit": "letting in",
        "encode": "encoding",
        "launch_prefill": "launching prefill",
        "read": "reading tokens",
    }
    rows = [[*heads, *parts.values()], ["---"] * (len(heads) + len(parts))]
    for way in read("threads")["ways"]:
        cells = [str(way["threads"]), f"{way['turn_ms']:g}", f"{way['all_ms']:.0f}", f"{way['first_ms']:.0f}"]
        rows.append([*cells, *(f"{way['parts_ms'][part]:.0f}" for part in parts)])
    return table(rows)


def profile_table() -> str:
    """Where the time of a replay goes: the host's part, and kernels of the same kind together."""
    heads = ["size", "case", "call, ms", "on the device", "products", "attention", "norms", "other kernels"]
    rows = [[*heads, "kernels : device"]]
    rows.append(["---"] * len(rows[0]))
    for size, cases in read("profiles")["sizes"].items():
        for name, case in cases.items():
            shares = {"products": 0.0, "attention": 0.0, "norms": 0.0, "other": 0.0}
            for kernel in case["kernels"]:
                shares[_kind_of(kernel["kernel"])] += kernel["us"] / 1e3
            times = [case["replay_ms"], case["device_ms"], *shares.values()]
            rows.append([size, name, *(f"{ms:.2f}" for ms in times), f"{case['kernels_ms'] / case['device_ms']:.2f}"])
    return table(rows)


def _kind_of(kernel: str) -> str:
    if "attention" in kernel or "join_splits" in kernel:
        return "attention"
    if "norm" in kernel:
        return "norms"
    is_product = any(word in kernel for word in ("nvjet", "gemm", "cutlass", "splitK", "product"))
    return "products" if is_product else "other"


def start_up_table() -> str:
    """Seconds from starting Python to being ready, with compiled kernels and costs on disk."""
    rows = [["size", "start", "import", "load and capture", "ready", "first words"], ["---"] * 6]
    for size, measured in read("start-up")["sizes"].items():
        for name in ("first_start_s", "second_start_s"):
            told = measured[name]
            cells = [f"{told[part]:.1f} s" for part in ("import", "load", "ready", "first_words")]
            rows.append([size, name.split("_")[0], *cells])
    return table(rows)


def table(rows: list[list[str]]) -> str:
    """Return rows of cells as Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


TABLES: dict[str, Callable[[], str]] = {
    "encoder": encoder_table,
    "padding": padding_table,
    "ways": ways_table,
    "never slower": never_slower_table,
    "pixels": pixels_table,
    "serving": serving_table,
    "first words": first_words_table,
    "stages": stages_table,
    "steps": steps_table,
    "reference setting": reference_setting_table,
    "threads": threads_table,
    "profile": profile_table,
    "start-up": start_up_table,
    "parity": parity_table,
    "accuracy": accuracy_table,
    "accuracy on a GPU": accuracy_on_gpu_table,
    "changed answers": changed_answers_table,
    "changed answers on a CPU": changed_answers_on_cpu_table,
}
NOT_MEASURED = "*Not measured yet.*"
"""What stands in place of a table whose result is not there."""


def filled(text: str) -> str:
    """Return a document with every table between its markers made anew."""
    return re.sub(r"(?<=<!-- table: )(.+?)( -->\n).*?(?=<!-- end -->)", _fill, text, flags=re.DOTALL)


def _fill(match: re.Match[str]) -> str:
    name, marker = match.groups()
    try:
        made = TABLES[name]()
    except FileNotFoundError:
        made = NOT_MEASURED
    return f"{name}{marker}{made}\n"


def main() -> int:
    """Rewrite or check the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check, current = parser.parse_args().check, True
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        current &= filled(text) == text
        if not check:
            document.write_text(filled(text), encoding="utf-8")
    return 0 if current or not check else 1


if __name__ == "__main__":
    sys.exit(main())

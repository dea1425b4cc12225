"""How long does the host plan a batch of 1 to 40 tiles?

    python benchmarks/planning.py [OUT.json]

Microseconds, median and 95th percentile, of the automatic budgets of LFM2.5-VL. Needs no GPU. `full` are tiles of 256
tokens, `small` of 64, `mixed` of 64 to 256 at random; costs are measured ones of an H200 with the unevenness that
measurements have, so that nothing is as cheap as a formula would make it.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from common import write_report

from foveate.graphs import BudgetRange, EncoderGraphSettings, EncoderItemSpec, MeasuredCosts, Planner, TileSpec
from foveate.graphs.budgets import graph_capacities
from foveate.machine import machine_card

SPAN = BudgetRange(smallest=64, largest=2816, step=256)
ROUNDS = 100


def costs(budgets: list[int], draw: random.Random) -> MeasuredCosts:
    """About those of LFM2.5-VL-3B, each off by up to 4 %."""
    replays = {budget: (1.04 + 0.0065 * budget) * draw.uniform(0.96, 1.04) for budget in budgets}
    return MeasuredCosts(replays, ((64, 8.0), (1024, 8.8), (2816, 20.5), (5632, 40.5), (11264, 80.0)))


def time_us(planner: Planner, batches: list[list[EncoderItemSpec]]) -> tuple[float, float]:
    """Median and 95th percentile over some batches, each planned several times."""
    times = []
    for batch in batches:
        for _ in range(ROUNDS // len(batches)):
            start = time.perf_counter()
            planner.plan(batch)
            times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return statistics.median(times), times[round(0.95 * (len(times) - 1))]


def main() -> None:
    """Print the table, end with one line of JSON, and write the report if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    out = parser.parse_args().out
    draw = random.Random(0)
    capacities = graph_capacities(EncoderGraphSettings(), SPAN, inputs_per_token=4, frames_per_video=0)
    planner = Planner(capacities, costs([capacity.tokens for capacity in capacities], draw))
    sizes = {"full": lambda: 256, "small": lambda: 64, "mixed": lambda: draw.randint(64, 256)}
    medians: dict[str, dict[int, float]] = {name: {} for name in sizes}
    print("tiles  " + "  ".join(f"{name:>16}" for name in sizes) + "   µs, median (p95)")
    for tiles in range(1, 41):
        cells = []
        for name, size in sizes.items():
            tokens = [[size() for _ in range(tiles)] for _ in range(5)]
            batches = [[EncoderItemSpec.of([TileSpec(4 * each, each)]) for each in batch] for batch in tokens]
            median, p95 = time_us(planner, batches)
            medians[name][tiles] = round(median, 1)
            cells.append(f"{median:8.0f} ({p95:5.0f})")
        print(f"{tiles:5}  " + "  ".join(cells), flush=True)
    largest = {name: values[40] for name, values in medians.items()}
    cores = machine_card().processor_cores
    print(json.dumps({"benchmark": "planning", "cores": cores, "median_us_of_40_tiles": largest}))
    if out is not None:
        write_report(out, "How long does the host plan a batch of 1 to 40 tiles?", {"median_us": medians})


if __name__ == "__main__":
    main()

"""Which kernels does the time of the encoder and of a decode step go to?

    python benchmarks/profiles.py OUT.json [--sizes 450M 3B]

Replays of captured graphs under torch's profiler, random weights of the true sizes in bfloat16. For each case, without
the profiler: a call with the wait for its end, and a call among many in a row, where the host is ahead and what counts
is the device alone. Then the kernels by name with their launches and microseconds in one replay. Where launches
overlap, a kernel's time begins while the one before it still runs, so together they may take longer than the device.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import SIZES, TILE_ROWS, ceilings, need_gpu, time_interleaved, write_report
from torch.profiler import ProfilerActivity, profile

from foveate import EngineSettings, SamplingParams
from foveate.bench.batches import TileRow
from foveate.engine.decoder import Decoder, step_backend
from foveate.engine.graph_encoding import capture_encoder
from foveate.engine.memory import allocate
from foveate.engine.sampler import SamplingKind
from foveate.graphs import EncoderGraphSettings
from foveate.graphs.measuring import time_ms
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.tiles import TileShape
from foveate.testing import random_vlm

CALLS, ROWS = 10, 5
CONTEXT_TOKENS = 1024
SHOWN = 12
LEFT_OUT = ("7 tiles, 1696 tokens", "11 tiles, 2688 tokens")


def kernels_of(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the kernels of one call, the longest first."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    rows = [
        {
            "kernel": event.key,
            "launches": event.count / CALLS,
            "us": round(event.self_device_time_total / CALLS, 2),
        }
        for event in recorded.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row["us"])


def device_ms(call: Callable[[], Any]) -> float:
    """Return the milliseconds of one call among many that nobody waits for, the median of a few times."""

    def calls() -> None:
        for _ in range(CALLS):
            call()

    times = []
    for _ in range(ROWS):
        torch.cuda.synchronize()
        call()  # The first is launched before the clock starts: the host is ahead from then on.
        times.append(time_ms(torch.device("cuda"), calls) / CALLS)
    return round(statistics.median(times), 4)


def told(call: Callable[[], Any]) -> dict[str, Any]:
    """Time a call and break it down."""
    replay = time_interleaved({"replay": call}, rounds=20)["replay"]["median_ms"]
    kernels = kernels_of(call)
    kernels_ms = round(sum(row["us"] for row in kernels) / 1e3, 4)
    return {"replay_ms": replay, "device_ms": device_ms(call), "kernels_ms": kernels_ms, "kernels": kernels}


def encoder_cases(model: Lfm2VlModel) -> dict[str, Any]:
    """Every row of the encoder's table."""
    graph = capture_encoder(model, EncoderGraphSettings())
    cases = {}
    for name, tiles in TILE_ROWS.items():
        if name in LEFT_OUT:
            continue
        row = TileRow(name, tuple(TileShape(*tile) for tile in tiles), (len(tiles),))
        batch = row.batch(model.config, model.device, model.dtype)
        cases[f"encoder, {name}"] = told(partial(graph.encode, batch))
    return cases


def decode_cases(model: Lfm2VlModel) -> dict[str, Any]:
    """A greedy step, alone and of 32."""
    memory = allocate(model, EngineSettings(max_running=32, cache_megabytes=4000))
    slots = []
    for _ in range(32):
        own = memory.pool.open(CONTEXT_TOKENS + 400)
        memory.slots.set(own, SamplingParams(), [1])
        slots.append(own.slot)
    decoder = Decoder(model, memory.pool.tensors, memory.slots, step_backend(model.device))
    decoder.record()
    cases = {}
    for count in (1, 32):
        memory.slots.lengths[:-1] = CONTEXT_TOKENS
        cases[f"decode step, {count} at once"] = told(partial(decoder.launch, slots[:count], SamplingKind.GREEDY))
    return cases


def show(size: str, cases: dict[str, Any]) -> None:
    """Print the longest kernels of each case."""
    for name, case in cases.items():
        times = ", ".join(f"{part} {case[f'{part}_ms']:.3f} ms" for part in ("replay", "device", "kernels"))
        print(f"{size} {name}: {times}")
        for row in case["kernels"][:SHOWN]:
            print(f"    {row['us']:9.1f} us  {row['launches']:5.0f} x  {row['kernel'][:110]}")


@torch.inference_mode()
def main() -> None:
    """Profile, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = parser.parse_args()
    need_gpu()
    results = {}
    for size in arguments.sizes:
        vlm = random_vlm(SIZES[size], device="cuda", compilation_config={"cudagraph_mm_encoder": False})
        results[size] = decode_cases(vlm.model) | encoder_cases(vlm.model)
        show(size, results[size])
    question = "Which kernels does the time of the encoder and of a decode step go to?"
    write_report(arguments.out, question, {"ceilings": ceilings(), "sizes": results})


if __name__ == "__main__":
    main()

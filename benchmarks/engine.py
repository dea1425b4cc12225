"""How long does the engine take to answer n questions at once, and what does a decode step take?

    python benchmarks/engine.py OUT.json [--sizes 450M 3B] [--rounds 8]

Random weights of the true sizes in bfloat16, greedy, 64 tokens an answer whatever the model says. Each question shows
another picture, and no features are kept. First it is checked that answers in company are those that each gets alone;
in bfloat16 a few may differ by rounding, and are counted.
"""

import argparse
import queue
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import SIZES, ceilings, summary, write_report

from foveate import VLM, Answer, EngineSettings, SamplingParams
from foveate.engine.clock import Span
from foveate.engine.decoder import Decoder, DirectBackend, step_backend
from foveate.engine.memory import allocate
from foveate.engine.request import Event, Failed, Finished
from foveate.engine.sampler import SamplingKind
from foveate.testing import random_vlm
from foveate.vlm import question

PICTURES = ((512, 512), (1920, 1080))
AT_ONCE = (1, 4, 16, 32)
TOKENS = 64
CONTEXT_TOKENS = 1024


def noise(width: int, height: int, seed: int) -> Any:
    """Return a picture that nobody has shown before."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()


def answers(vlm: VLM, pictures: list[Any], tokens: int = TOKENS) -> list[Answer]:
    """Ask about all pictures at once."""
    events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    params = SamplingParams(max_tokens=tokens, ignore_stop_tokens=True)
    for index, picture in enumerate(pictures):
        vlm.engine.submit([question([picture], "What is this?")], params, partial(_put, events, index))
    ended: dict[int, Answer] = {}
    while len(ended) < len(pictures):
        index, event = events.get()
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            ended[index] = event.answer
    return [ended[index] for index in range(len(pictures))]


def _put(events: "queue.SimpleQueue[tuple[int, Event]]", index: int, event: Event) -> None:
    events.put((index, event))


def changed_answers(vlm: VLM, count: int) -> int:
    """Return how many of some answers are other ones in company."""
    pictures = [noise(512, 512, seed) for seed in range(count)]
    alone = [answers(vlm, [picture])[0].token_ids for picture in pictures]
    together = [answer.token_ids for answer in answers(vlm, pictures)]
    return sum(one != other for one, other in zip(alone, together, strict=True))


def measure_answers(vlm: VLM, size: tuple[int, int], count: int, rounds: int) -> dict[str, Any]:
    """Return the milliseconds of a batch, of the first words, and between two tokens."""
    whole, first, between = [], [], []
    for number in range(rounds + 2):
        pictures = [noise(*size, 1000 * number + index) for index in range(count)]
        start = time.perf_counter()
        made = answers(vlm, pictures)
        if number >= 2:  # The first two warm up.
            whole.append((time.perf_counter() - start) * 1e3)
            first += [answer.token_times_ms[0] for answer in made]
            gaps = [(answer.token_times_ms[-1] - answer.token_times_ms[0]) / (TOKENS - 1) for answer in made]
            between.append(statistics.mean(gaps))
    told = {"batch_ms": summary(whole), "first_token_ms": summary(first), "between_tokens_ms": summary(between)}
    return {**told, "prompt_tokens": made[0].prompt_tokens, "stages_ms": dict(made[0].stages_ms)}


def measure_steps(vlm: VLM, rounds: int) -> dict[str, Any]:
    """Return the milliseconds that the device takes for a decode step by batch size, kind, and way of launching."""
    settings = EngineSettings(max_running=max(AT_ONCE), cache_megabytes=4000)
    memory = allocate(vlm.model, settings)
    slots = []
    for _ in range(max(AT_ONCE)):
        own = memory.pool.open(CONTEXT_TOKENS + 2 * rounds)
        memory.slots.set(own, SamplingParams(), [1])
        slots.append(own.slot)
    report: dict[str, Any] = {}
    for backend in (DirectBackend(), step_backend(vlm.model.device)):
        decoder = Decoder(vlm.model, memory.pool.tensors, memory.slots, backend)
        decoder.record()
        for count in AT_ONCE:
            for kind in SamplingKind:
                memory.slots.lengths[:-1] = CONTEXT_TOKENS
                times = []
                for number in range(rounds + 4):
                    span = Span(vlm.model.device)
                    decoder.launch(slots[:count], kind)
                    span.stop()
                    if number >= 4:
                        times.append(span.milliseconds)
                report[f"{backend.name}, {count} at once, {kind.name.lower()}"] = summary(times)
    return report


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Measure one size."""
    vlm = random_vlm(SIZES[size], device="cuda", dtype="bfloat16", engine=EngineSettings(image_cache_megabytes=0))
    steps = measure_steps(vlm, 20)
    with vlm:
        start = time.perf_counter()
        vlm.start_engine()
        start_s = time.perf_counter() - start
        changed = changed_answers(vlm, 16)
        by_picture = {
            f"{width}x{height}": {count: measure_answers(vlm, (width, height), count, rounds) for count in AT_ONCE}
            for width, height in PICTURES
        }
        pages = vlm.engine.stats.pages
    return {
        "engine_start_s": round(start_s, 2),
        "cache_pages": pages,
        "changed_in_company_of_16": changed,
        "steps": steps,
        "answers": by_picture,
    }


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    ceiling = ceilings()
    results = {size: measure(size, arguments.rounds) for size in arguments.sizes}
    for size, told in results.items():
        print(size, "start", told["engine_start_s"], "s; changed in company", told["changed_in_company_of_16"])
        for name, times in told["steps"].items():
            print(size, "step:", name, times)
        for picture, counts in told["answers"].items():
            for count, times in counts.items():
                print(size, picture, count, "at once:", times["batch_ms"], times["first_token_ms"])
    write_report(
        arguments.out, "How long does the engine take for n questions at once?", {"ceilings": ceiling, "sizes": results}
    )


if __name__ == "__main__":
    main()

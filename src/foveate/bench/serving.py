"""Questions about pictures, several at once, from the bytes of their files to the last token: what takes how long."""

import queue
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any

from foveate.bench.timing import summary
from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.request import Cancelled, Event, Failed, Finished
from foveate.errors import CancelledError
from foveate.vlm import VLM, question

PROMPT = "What is this?"
STAGES = ("identify", "decode_images", "pixels", "prompt", "waiting", "encode", "prefill", "decode")
"""In the order in which a request goes through them."""
WARM_UPS = 2
"""Rounds that are not counted."""


@dataclass(frozen=True)
class Load:
    """One row: what is sent at a time."""

    name: str
    """What tables call its pictures."""
    pictures: Sequence[bytes]
    """Files; each request shows one, in turn."""
    output_tokens: int
    """Tokens of each answer."""
    at_once: int
    """Requests of a round."""


@dataclass
class Times:
    """What the rounds of one row took, in one way."""

    rounds_ms: list[float] = field(default_factory=list)
    """From the first request's sending to the last answer's end."""
    answers: list[Answer] = field(default_factory=list)

    def record(self, load: Load) -> dict[str, Any]:
        """Return medians and 95th percentiles in milliseconds, rates by the second, and the stages' medians."""
        firsts = [answer.token_times_ms[0] for answer in self.answers]
        between = [
            (answer.token_times_ms[-1] - answer.token_times_ms[0]) / (len(answer.token_times_ms) - 1)
            for answer in self.answers
            if len(answer.token_times_ms) > 1
        ]
        whole = [answer.token_times_ms[-1] for answer in self.answers]
        second = statistics.median(self.rounds_ms) / 1e3
        return {
            "first_token_ms": summary(firsts),
            "between_tokens_ms": summary(between) if between else None,
            "answer_ms": summary(whole),
            "round_ms": summary(self.rounds_ms),
            "requests_per_s": round(load.at_once / second, 2),
            "tokens_per_s": round(load.at_once * load.output_tokens / second, 1),
            "stages_ms": _stages(self.answers),
        }


def measure_load(vlms: Mapping[str, VLM], load: Load, rounds: int) -> dict[str, Any]:
    """Run a row `rounds` times in every way, in turn; returns its record. Raises what a request fails with."""
    times = {way: Times() for way in vlms}
    for number in range(WARM_UPS + rounds):
        shown = islice(cycle(load.pictures), number * load.at_once, (number + 1) * load.at_once)
        pictures = list(shown)
        for way, vlm in vlms.items():
            start = time.perf_counter()
            made = answers(vlm, pictures, load.output_tokens)
            if number >= WARM_UPS:
                times[way].rounds_ms.append((time.perf_counter() - start) * 1e3)
                times[way].answers += made
    some = next(iter(times.values())).answers[0]
    return {
        "pictures": load.name,
        "output_tokens": load.output_tokens,
        "at_once": load.at_once,
        "prompt_tokens": some.prompt_tokens,
        "image_tokens": some.image_tokens,
        "ways": {way: each.record(load) for way, each in times.items()},
    }


def row_name(row: Mapping[str, Any]) -> str:
    """Return what tables call a row."""
    tokens, at_once = row["output_tokens"], row["at_once"]
    return f"{row['pictures']}, {tokens} token{'s' * (tokens > 1)}, {at_once} at once"


def answers(vlm: VLM, pictures: Sequence[bytes], tokens: int) -> list[Answer]:
    """Ask about all pictures at once, greedily, and wait for all answers."""
    events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    params = SamplingParams(max_tokens=tokens, ignore_stop_tokens=True)
    for index, picture in enumerate(pictures):
        vlm.engine.submit([question([picture], PROMPT)], params, partial(_put, events, index))
    ended: dict[int, Answer] = {}
    while len(ended) < len(pictures):
        index, event = events.get()
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Cancelled):
            raise CancelledError("a request of the benchmark was cancelled")
        if isinstance(event, Finished):
            ended[index] = event.answer
    return [ended[index] for index in range(len(pictures))]


def _put(events: "queue.SimpleQueue[tuple[int, Event]]", index: int, event: Event) -> None:
    events.put((index, event))


def _stages(made: Sequence[Answer]) -> dict[str, float]:
    by_stage: dict[str, list[float]] = defaultdict(list)
    for answer in made:
        for stage, milliseconds in answer.stages_ms.items():
            by_stage[stage].append(milliseconds)
    return {stage: round(statistics.median(by_stage[stage]), 3) for stage in STAGES if stage in by_stage}

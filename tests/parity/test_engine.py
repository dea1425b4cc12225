"""The engine answers as transformers does, whoever else asks, whenever they ask, however prompts are cut."""

import queue
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
import torch

from foveate.config import SamplingParams
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.engine import Engine
from foveate.engine.memory import allocate
from foveate.engine.prefill import Chunk, Prefill
from foveate.engine.request import Cancelled, Event, Finished, Request, TextPiece
from foveate.engine.sampler import SamplingKind
from foveate.engine.settings import EngineSettings
from tests.parity.pictures import picture, shown, user
from tests.parity.reference import Pair
from tests.parity.running import features_of, relative_error

NAMES = ("LFM2-VL-450M", "LFM2.5-VL-1.6B", "LFM2.5-VL-3B", "saved by transformers")
FLOAT32_BOUND = 1e-5
LONGEST = 24
CONVERSATIONS = [
    [user("Hi.")],
    [user(shown(picture(1024, 529)), "What is this, in one word?")],
    [{"role": "system", "content": "Be brief. " * 12}, user(shown(picture(64, 64)), shown(picture(300, 200)))],
    [user("Tell me of the mountain, the river, the bridge and the road to the sea. " * 3)],
    [user("Before ", shown(picture(64, 64)), " between ", shown(picture(64, 64, 1)), " and after.")],
    [user(shown(picture(300, 200)), "?"), {"role": "assistant", "content": "Noise."}, user("Why?")],
]


def on_and_on(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_stop_tokens=True)


@pytest.fixture(scope="module")
def expected_of(pair_of: Callable[[str], Pair]) -> Callable[[str], list[list[int]]]:
    """Return a function from a checkpoint to the reference's greedy tokens about each conversation."""
    kept: dict[str, list[list[int]]] = {}

    def expected(name: str) -> list[list[int]]:
        if name not in kept:
            pair = pair_of(name)
            kept[name] = [pair.greedy(pair.inputs(messages), LONGEST) for messages in CONVERSATIONS]
        return kept[name]

    return expected


@pytest.fixture
def engine_of(pair_of: Callable[[str], Pair]) -> Iterator[Callable[..., Engine]]:
    """Return a function that makes an engine of a checkpoint, which ends with the test."""
    engines: list[Engine] = []

    def make(name: str, **settings: object) -> Engine:
        vlm = pair_of(name).vlm
        engines.append(
            Engine(vlm.model, vlm.processor, EagerImageEncoder(vlm.model.encoder), EngineSettings(**settings))
        )
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("steps_ahead", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_50_mixed_requests_that_come_at_any_time_get_the_reference_s_tokens_and_some_are_cancelled(
    engine_of: Callable[..., Engine], expected_of: Callable[[str], list[list[int]]], name: str, steps_ahead: int
):
    """Little memory, so that they wait for each other; small chunks, so that prompts are cut within their pictures."""
    pages = sum(-(-(len(prompt) + LONGEST) // 64) for prompt in _prompts(engine_of(name))[:3])
    page_megabytes = _page_megabytes(engine_of(name))
    engine = engine_of(
        name,
        max_running=7,
        prefill_tokens_per_step=53,
        cache_megabytes=(pages + 2) * page_megabytes + 0.5,
        images_per_encode=3,
        image_cache_megabytes=0.2,
        steps_ahead=steps_ahead,
    )
    chance = random.Random(name)
    events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    asked: list[tuple[Request, int, int]] = []
    cancelled: set[int] = set()
    ends: dict[int, Event] = {}
    while len(ends) < 50:
        while len(asked) < 50 and (len(asked) == len(ends) or chance.random() < 0.3):
            which, count = chance.randrange(len(CONVERSATIONS)), chance.randint(1, LONGEST)
            sink = partial(_put, events, len(asked))
            asked.append((engine.submit(CONVERSATIONS[which], on_and_on(count), sink), which, count))
        if chance.random() < 0.02:
            victim = chance.randrange(len(asked))
            cancelled.add(victim)
            engine.cancel(asked[victim][0])
        number, event = events.get(timeout=120)
        assert number not in ends
        if not isinstance(event, TextPiece):
            ends[number] = event
    for number, (_, which, count) in enumerate(asked):
        end = ends[number]
        if isinstance(end, Finished):
            assert list(end.answer.token_ids) == expected_of(name)[which][:count]
        else:
            assert isinstance(end, Cancelled)
            assert number in cancelled
    assert sum(isinstance(end, Finished) for end in ends.values()) >= 30


def _put(events: "queue.SimpleQueue[tuple[int, Event]]", number: int, event: Event) -> None:
    events.put((number, event))


def _prompts(engine: Engine) -> list[list[int]]:
    return sorted((engine.prepare(messages).token_ids for messages in CONVERSATIONS), key=len, reverse=True)


def _page_megabytes(engine: Engine) -> float:
    tensors = engine._memory.pool.tensors
    return (tensors.keys[:, 0].nbytes + tensors.values[:, 0].nbytes) / 1e6


@torch.inference_mode()
@pytest.mark.parametrize("name", ["LFM2.5-VL-1.6B", "saved by transformers"])
def test_a_prompt_may_be_cut_at_any_place(pair_of: Callable[[str], Pair], name: str):
    """Within a picture's placeholders too, and so that a part is shorter than a convolution's state of 2 or 3 rows."""
    pair = pair_of(name)
    prompt = pair.prompt([user("A ", shown(picture(64, 64)), " b")])
    (features,) = features_of(pair.vlm.model, [prompt])
    ids, placeholder = prompt.token_ids, pair.vlm.model.config.image_token_id
    memory = allocate(pair.vlm.model, EngineSettings(max_running=1, cache_megabytes=8))
    prefill = Prefill(pair.vlm.model, memory.pool, memory.slots)

    def run(*borders: int) -> torch.Tensor:
        own = memory.pool.open(len(ids) + 1)
        memory.slots.set(own, on_and_on(1), ids)
        edges = [0, *borders, len(ids)]
        for first, end in pairwise(edges):
            before, here = ids[:first].count(placeholder), ids[first:end].count(placeholder)
            part = features[before : before + here] if here else None
            result = prefill.run([Chunk(own, torch.tensor(ids[first:end]), part, end == len(ids))], SamplingKind.GREEDY)
            assert (result is None) == (end < len(ids))
        memory.pool.close(own)
        return result.logits[0]

    whole = run()
    assert relative_error(whole, pair.logits(pair.inputs([user("A ", shown(picture(64, 64)), " b")]))) < FLOAT32_BOUND
    for border in range(1, len(ids)):
        assert relative_error(run(border), whole) < FLOAT32_BOUND
        if border + 1 < len(ids):
            assert relative_error(run(border, border + 1), whole) < FLOAT32_BOUND
    assert relative_error(run(*range(1, len(ids))), whole) < FLOAT32_BOUND

"""First come, first served among those that fit; nobody waits for ever."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.config import SamplingParams
from foveate.engine.caches import CachePool
from foveate.engine.clock import Span, StageClock
from foveate.engine.preparation import Prepared
from foveate.engine.request import Request, Stage
from foveate.engine.scheduler import Scheduler
from foveate.engine.sequence import Sequence as AnswerSequence
from foveate.engine.settings import EngineSettings
from foveate.models.caches import CacheTensors

CPU = torch.device("cpu")
PAGE_TOKENS = 4


def new_pool(pages: int, slots: int) -> CachePool:
    keys = torch.zeros(1, pages + 1, PAGE_TOKENS, 1, 1)
    return CachePool(CacheTensors(keys, keys.clone(), torch.zeros(1, slots + 1, 2, 1)), spare=1)


def request(number: int, tokens: int) -> Request:
    """A request that needs so many tokens of memory, at least 2."""
    params = SamplingParams(max_tokens=1)
    sequence = AnswerSequence(params, decode=str, stop_token_ids=())
    made = Request(params, print, sequence, 99, StageClock(CPU), arrival=number)
    made.prepared = Prepared(
        [1] * (tokens - 1), torch.ones(tokens - 1, dtype=torch.int64), [], 0, StageClock(CPU), Span(CPU)
    )
    return made


def scheduler(sizes: Sequence[int], *, pages: int, slots: int = 100, **chosen: int) -> Scheduler:
    made = Scheduler(new_pool(pages, slots), EngineSettings(**chosen))
    for number, size in enumerate(sizes):
        made.add(request(number, size * PAGE_TOKENS))
    return made


def arrivals(requests: Sequence[Request]) -> list[int]:
    return [each.arrival for each in requests]


def test_those_that_fit_go_in_the_order_in_which_they_came():
    made = scheduler([3, 3, 3, 3], pages=9)
    assert arrivals(made.admit()) == [0, 1, 2]
    assert arrivals(made.admit()) == []
    made.remove(made.running[1])
    assert arrivals(made.admit()) == [3]


def test_a_small_one_goes_before_a_big_one_that_does_not_fit_yet():
    made = scheduler([6, 8, 2, 2], pages=10)
    assert arrivals(made.admit()) == [0, 2, 3]


def test_one_that_was_prepared_late_keeps_its_place():
    made = scheduler([], pages=4)
    for number in (2, 0, 1):
        made.add(request(number, 4 * PAGE_TOKENS))
    assert arrivals(made.admit()) == [0]


def test_a_big_one_is_overtaken_only_so_often():
    made = scheduler([5, 10, *[1] * 20], pages=10, max_overtakes=3)
    assert arrivals(made.admit()) == [0, 2, 3, 4]
    for _ in range(10):  # Small ones end, and others could take their place.
        made.remove(made.running[-1])
        if len(made.running) > 1:
            assert arrivals(made.admit()) == []
        else:
            break
    made.remove(made.running[0])
    assert arrivals(made.admit()) == [1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10), max_size=40), st.integers(0, 4), st.integers(1, 4), st.data())
def test_everyone_has_a_turn_whatever_ends_when(sizes: list[int], most: int, slots: int, data: st.DataObject):
    """And at no time more pages or slots are owned than there are."""
    made = scheduler(sizes, pages=10, slots=slots, max_overtakes=most)
    served: list[int] = []
    while made.waiting or made.running:
        admitted = made.admit()
        for each in admitted:
            behind = [other for other in served if other > each.arrival]
            assert len(behind) <= most * (each.arrival + 1)
        served += arrivals(admitted)
        assert made.running, "nobody runs and nobody is let in"
        made.remove(data.draw(st.sampled_from(made.running)))
    assert sorted(served) == list(range(len(sizes)))
    assert (made._pool.num_free_pages, made._pool.num_free_slots) == (10, slots)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 40))
def test_prompts_run_in_chunks_within_the_bound_in_order_and_once(lengths: list[int], bound: int):
    made = scheduler([], pages=100, prefill_tokens_per_step=bound)
    for number, length in enumerate(lengths):
        made.add(request(number, length + 1))
    for each in made.admit():
        each.stage = Stage.PREFILLING
    steps = []
    while made.in_stage(Stage.PREFILLING):
        shares = made.prefill_shares()
        assert 0 < sum(tokens for _, tokens in shares) <= bound
        assert all(tokens > 0 for _, tokens in shares)
        for each, tokens in shares:
            each.prefilled += tokens
            if not each.unprefilled:
                each.stage = Stage.DECODING
        steps.append(shares)
    assert len(steps) == -(-sum(lengths) // bound)
    order = [each.arrival for shares in steps for each, _ in shares]
    assert order == sorted(order)


def test_one_that_failed_in_company_runs_alone():
    made = scheduler([2, 2, 2], pages=10)
    for each in made.admit():
        each.stage = Stage.PREFILLING
    made.restart(made.running[1])
    assert arrivals([each for each, _ in made.prefill_shares()]) == [0]
    made.running[0].stage = Stage.DECODING
    assert arrivals([each for each, _ in made.prefill_shares()]) == [1]
    made.running[1].stage = Stage.DECODING
    assert arrivals([each for each, _ in made.prefill_shares()]) == [2]


def test_an_answer_that_has_all_its_tokens_launched_is_not_launched_again():
    made = scheduler([1], pages=1)
    (only,) = made.admit()
    only.stage = Stage.DECODING
    assert made.decodable() == [only]
    only.launched = 1
    assert made.decodable() == []

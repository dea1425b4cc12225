"""Sampling is repeatable by its seed, and its settings do what they say at their ends."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.config import MAX_SEED, SamplingParams
from foveate.engine.caches import SequenceMemory
from foveate.engine.noise import exponential_noise
from foveate.engine.sampler import (
    SamplingKind,
    choose,
    has_penalties,
    likeliest,
    penalised,
    probabilities,
    sampling_kind,
)
from foveate.engine.slots import SlotTable
from tests.sampling import draw, sampling_rows

CPU = torch.device("cpu")
SIZE = 50


def some_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, SIZE, generator=torch.Generator().manual_seed(seed)) * 3


@st.composite
def any_params(draw: st.DrawFn) -> SamplingParams:
    """Any settings, each of them off every now and then."""

    def off_or(value: object, strategy: st.SearchStrategy[object]) -> object:
        return draw(st.one_of(st.just(value), strategy))

    return SamplingParams(
        temperature=off_or(0.0, st.floats(1e-300, 100)),
        top_p=off_or(1.0, st.floats(0, 1, exclude_min=True)),
        top_k=off_or(0, st.integers(0, 10**20)),
        min_p=off_or(0.0, st.floats(0, 1)),
        repetition_penalty=off_or(1.0, st.floats(0.01, 100)),
        presence_penalty=off_or(0.0, st.floats(-2, 2)),
        frequency_penalty=off_or(0.0, st.floats(-2, 2)),
        seed=draw(st.integers(0, MAX_SEED)),
    )


def test_a_seed_makes_sampling_repeatable():
    params, rows = SamplingParams(temperature=1.0, seed=7), some_logits(40)
    assert draw(params, rows) == draw(params, rows)


def test_another_seed_gives_other_tokens():
    rows = some_logits(40)
    results = [draw(SamplingParams(temperature=1.0, seed=seed), rows) for seed in (1, 2, MAX_SEED, 0)]
    assert len(set(map(tuple, results))) == 4


def test_the_same_logits_do_not_give_the_same_token_again_and_again():
    tokens = draw(SamplingParams(temperature=1.0, seed=7), torch.zeros(60, SIZE))
    assert len(set(tokens)) > 20


def test_sampling_moves_no_generator_of_torch():
    state = torch.random.get_rng_state()
    draw(SamplingParams(temperature=1.0, seed=7), some_logits(5))
    assert torch.equal(torch.random.get_rng_state(), state)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_params(), min_size=2, max_size=6), st.integers(0, 100))
def test_a_row_of_a_batch_gets_the_token_that_it_gets_alone(batch: list[SamplingParams], seed: int):
    logits = some_logits(len(batch), seed)
    told = {"prompts": [[row, 3] for row in range(len(batch))], "answers": [[5] * row for row in range(len(batch))]}
    together = choose(logits, sampling_rows(batch, SIZE, **told)).tolist()
    alone = [
        choose(logits[row : row + 1], sampling_rows([each], SIZE, **{key: [value[row]] for key, value in told.items()}))
        for row, each in enumerate(batch)
    ]
    assert together == [int(token) for token in alone]


@settings(max_examples=60, deadline=None)
@given(any_params(), st.integers(0, 100))
def test_the_least_that_a_request_needs_gives_the_token_that_the_most_gives(params: SamplingParams, seed: int):
    """So the company in a batch, which may need more, changes nothing."""
    logits = some_logits(1, seed)
    kind, rows = sampling_kind(params), sampling_rows([params], SIZE, prompts=[[3]], answers=[[4, 4]])
    most = choose(logits, rows)
    least = choose(logits, rows, is_filtered=kind is SamplingKind.FILTERED)
    assert int(least) == int(most)
    if kind is SamplingKind.GREEDY:
        assert int(likeliest(logits)) == int(most)


def test_without_a_temperature_the_likeliest_token_is_taken():
    rows = some_logits(20)
    assert draw(SamplingParams(top_k=3, seed=1), rows) == rows.argmax(1).tolist()


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-300}])
def test_the_narrowest_settings_leave_the_likeliest_token(narrow: dict[str, float]):
    rows = some_logits(20)
    assert draw(SamplingParams(**{"temperature": 1.0, "seed": 1, **narrow}), rows) == rows.argmax(1).tolist()


def test_the_widest_settings_leave_the_softmax():
    logits = some_logits(1)
    params = SamplingParams(temperature=1.0, top_k=50, top_p=1.0, min_p=0.0)
    assert torch.equal(probabilities(logits, sampling_rows([params], SIZE)), logits.softmax(1))


@settings(deadline=None)
@given(any_params())
def test_every_allowed_setting_gives_a_distribution(params: SamplingParams):
    rows = sampling_rows([params], SIZE, prompts=[[3, 4]], answers=[[4, 5, 5]])
    chances = probabilities(penalised(some_logits(1), rows), rows)
    assert bool((chances >= 0).all())
    assert float(chances.sum()) == pytest.approx(1, abs=1e-5)


def test_a_frequency_is_the_probability():
    """2,000 draws of a biased coin stay within four standard deviations."""
    logits = torch.tensor([0.7, 0.3]).log()
    heads = draw(SamplingParams(temperature=1.0, seed=3), logits.expand(2000, 2)).count(0)
    assert abs(heads - 1400) < 4 * (2000 * 0.7 * 0.3) ** 0.5


def test_noise_is_exponential_and_neighbours_are_independent():
    """Mean 1 and variance 1 within five standard errors, and no correlation of seeds, positions or tokens beside."""
    seeds, positions = torch.arange(40)[:, None].repeat_interleave(40, 0), torch.arange(40).repeat(40)[:, None]
    noise = exponential_noise(seeds, positions, 64)
    count = noise.numel()
    assert 0 < float(noise.min()) < float(noise.max()) < 20
    assert abs(float(noise.mean()) - 1) < 5 / count**0.5
    assert abs(float(noise.var()) - 1) < 5 * (8 / count) ** 0.5
    grid = noise.view(40, 40, 64) - 1
    for a, b in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1]), (grid[..., 1:], grid[..., :-1])):
        assert abs(float((a * b).mean())) < 5 / a.numel() ** 0.5


def test_a_repetition_penalty_counts_the_prompt_and_each_new_token_once():
    logits = torch.tensor([5.0, 4.0, 3.0, -1.0])
    params = SamplingParams(repetition_penalty=1.5)
    assert draw(params, logits.expand(4, 4), prompt=[0, 0, 0]) == [1, 0, 0, 0]
    rows = sampling_rows([SamplingParams(repetition_penalty=2.0)], 4, prompts=[[0]], answers=[[3, 3]])
    assert penalised(logits[None], rows).tolist() == [[2.5, 4.0, 3.0, -2.0]]
    assert logits.tolist() == [5.0, 4.0, 3.0, -1.0]


def test_presence_counts_once_and_frequency_each_time_and_neither_the_prompt():
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    rows = sampling_rows([params], 4, prompts=[[0]], answers=[[1, 2, 2, 2]])
    assert penalised(torch.ones(1, 4), rows).tolist() == [[1.0, 0.25, -0.25, 1.0]]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_no_numbers_give_no_token_and_harm_no_other_row(value: float):
    logits = some_logits(2)
    logits[0] = value
    params = [SamplingParams(temperature=1.0, seed=1)] * 2
    for tokens in (likeliest(logits), choose(logits, sampling_rows(params, SIZE))):
        assert int(tokens[0]) == -1
        assert 0 <= int(tokens[1]) < SIZE


@settings(max_examples=30, deadline=None)
@given(st.lists(any_params(), min_size=1, max_size=4))
def test_the_table_of_slots_holds_what_each_request_asked_for(batch: list[SamplingParams]):
    """Filled in any order, with what the slots held before, and read by slot."""
    table = SlotTable(6, most_pages=3, dummy_page=9, page_tokens=4, vocab_size=SIZE, device=CPU)
    busy = SamplingParams(temperature=2.0, repetition_penalty=3.0, presence_penalty=1.0, seed=1)
    for slot in range(6):
        table.set(SequenceMemory(slot, [slot]), busy, [slot])
    slots = torch.tensor([4, 0, 3, 1])[: len(batch)]
    for slot, params in zip(slots.tolist(), batch, strict=True):
        table.set(SequenceMemory(slot, [slot]), params, [slot + 10])
    got, expected = table._sampling_rows(slots), sampling_rows(batch, SIZE, prompts=(slots + 10)[:, None].tolist())
    for field in fields(got)[:-2]:
        assert torch.equal(getattr(got, field.name), getattr(expected, field.name)), field.name
    with_penalties = [has_penalties(params) for params in batch]
    assert torch.equal(got.in_prompt[with_penalties], expected.in_prompt[with_penalties])
    assert not got.counts[with_penalties].any()

"""Sampling is repeatable by its seed, and its settings do what they say at their ends."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.config import SamplingParams
from foveate.engine.sampler import Sampler, penalised, probabilities

CPU = torch.device("cpu")


def some_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 50, generator=torch.Generator().manual_seed(seed)) * 3


def draw(params: SamplingParams, rows: torch.Tensor, prompt: list[int] | None = None) -> list[int]:
    sampler = Sampler(params, prompt or [0], CPU)
    return [sampler.sample(row) for row in rows]


def test_a_seed_makes_sampling_repeatable():
    params, rows = SamplingParams(temperature=1.0, seed=7), some_logits(40)
    assert draw(params, rows) == draw(params, rows)


def test_another_seed_or_none_gives_other_tokens():
    rows = some_logits(40)
    results = [draw(SamplingParams(temperature=1.0, seed=seed), rows) for seed in (1, 2, None, None)]
    assert len(set(map(tuple, results))) == 4


def test_a_sampler_is_not_moved_by_other_draws_and_moves_none():
    """No generator is shared: neither torch's own nor another answer's."""
    params, rows = SamplingParams(temperature=1.0, seed=7), some_logits(20)
    expected, state = draw(params, rows), torch.random.get_rng_state()
    one, other = Sampler(params, [0], CPU), Sampler(SamplingParams(temperature=1.0, seed=8), [0], CPU)
    tokens = []
    for row in rows:
        other.sample(row)
        tokens.append(one.sample(row))
    assert tokens == expected
    assert torch.equal(torch.random.get_rng_state(), state)


def test_without_a_temperature_the_likeliest_token_is_taken():
    rows = some_logits(20)
    assert draw(SamplingParams(top_k=3, seed=1), rows) == rows.argmax(1).tolist()


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-300}])
def test_the_narrowest_settings_leave_the_likeliest_token(narrow: dict[str, float]):
    rows = some_logits(20)
    assert draw(SamplingParams(**{"temperature": 1.0, "seed": 1, **narrow}), rows) == rows.argmax(1).tolist()


def test_the_widest_settings_leave_the_softmax():
    (logits,) = some_logits(1)
    params = SamplingParams(temperature=1.0, top_k=50, top_p=1.0, min_p=0.0)
    assert torch.equal(probabilities(logits, params), logits.softmax(0))


@settings(deadline=None)
@given(
    st.floats(1e-300, 100),
    st.floats(0, 1, exclude_min=True),
    st.integers(0, 10**20),
    st.floats(0, 1),
    st.floats(0.01, 100),
)
def test_every_allowed_setting_gives_a_distribution(
    temperature: float, top_p: float, top_k: int, min_p: float, penalty: float
):
    (logits,) = some_logits(1)
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, repetition_penalty=penalty)
    chances = probabilities(penalised(logits, torch.tensor([3, 4]), penalty), params)
    assert bool((chances >= 0).all())
    assert float(chances.sum()) == pytest.approx(1, abs=1e-5)


def test_a_frequency_is_the_probability():
    """2,000 draws of a biased coin stay within four standard deviations."""
    logits = torch.tensor([0.7, 0.3]).log()
    heads = draw(SamplingParams(temperature=1.0, seed=3), logits.expand(2000, 2)).count(0)
    assert abs(heads - 1400) < 4 * (2000 * 0.7 * 0.3) ** 0.5


def test_a_repetition_penalty_counts_the_prompt_and_each_new_token_once():
    logits = torch.tensor([5.0, 4.0, 3.0, -1.0])
    assert draw(SamplingParams(repetition_penalty=1.5), logits.expand(4, 4), prompt=[0, 0, 0]) == [1, 0, 0, 0]
    assert penalised(logits, torch.tensor([0, 3]), 2.0).tolist() == [2.5, 4.0, 3.0, -2.0]
    assert logits.tolist() == [5.0, 4.0, 3.0, -1.0]

"""The distribution that tokens are drawn from is the one of transformers' own logits processors."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import foveate
from foveate.engine.noise import exponential_noise
from foveate.engine.sampler import penalised, probabilities
from tests.parity.pictures import picture, shown, user
from tests.parity.reference import Pair
from tests.sampling import sampling_rows


@st.composite
def sampling_cases(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Logits of a small vocabulary, tokens seen before, and settings, each of which may be off."""
    size = draw(st.integers(1, 40))
    logits = draw(st.lists(st.floats(-12, 12, width=32), min_size=size, max_size=size))
    seen = draw(st.sets(st.integers(0, size - 1)))
    params = {
        "temperature": draw(st.floats(0.05, 5)),
        "top_k": draw(st.integers(0, size + 2)),
        "top_p": draw(st.one_of(st.just(1.0), st.floats(0.01, 0.99))),
        "min_p": draw(st.one_of(st.just(0.0), st.floats(0.001, 1))),
        "repetition_penalty": draw(st.floats(0.5, 2)),
    }
    return torch.tensor(logits), torch.tensor(sorted(seen), dtype=torch.int64), params


def reference_distribution(logits: torch.Tensor, seen: torch.Tensor, params: dict[str, Any]) -> torch.Tensor:
    """What transformers' `generate` would draw from; its order of the processors."""
    processors = LogitsProcessorList()
    if len(seen):
        processors.append(RepetitionPenaltyLogitsProcessor(params["repetition_penalty"]))
    processors.append(TemperatureLogitsWarper(params["temperature"]))
    if params["top_k"]:
        processors.append(TopKLogitsWarper(params["top_k"]))
    if params["top_p"] < 1:
        processors.append(TopPLogitsWarper(params["top_p"]))
    processors.append(MinPLogitsWarper(params["min_p"]))
    return processors(seen[None], logits[None].clone())[0].softmax(0)


def is_on_an_edge(logits: torch.Tensor, params: dict[str, Any]) -> bool:
    """Whether rounding decides which tokens remain: a running sum at top_p, equals on both sides of it, or a chance at
    min_p of the highest."""
    chances = (logits.double() / params["temperature"]).softmax(0)
    if 0 < params["top_k"] < len(logits):
        kept = logits >= logits.topk(params["top_k"]).values[-1]
        chances = chances * kept / (chances * kept).sum()
    ordered = chances.sort().values
    sums = ordered.cumsum(0)
    border = int((sums <= 1 - params["top_p"]).sum())  # the first that top_p keeps; its equals may be any of them
    at_top_p = params["top_p"] < 1 and bool(((sums - (1 - params["top_p"])).abs() < 1e-5).any())
    at_top_p |= 0 < border < len(ordered) and float(ordered[border] - ordered[border - 1]) < 1e-9
    ratios = chances / chances.max()
    return at_top_p or bool(((ratios / params["min_p"] - 1).abs() < 1e-4).any() if params["min_p"] else False)


@settings(max_examples=300, deadline=None)
@given(sampling_cases())
def test_the_distribution_is_that_of_transformers_processors(case: tuple[torch.Tensor, torch.Tensor, dict[str, Any]]):
    logits, seen, params = case
    rows = sampling_rows([foveate.SamplingParams(**params)], len(logits), prompts=[seen.tolist()])
    scores = penalised(logits[None], rows)
    assume(not is_on_an_edge(scores[0], params))
    (got,) = probabilities(scores, rows)
    expected = reference_distribution(logits, seen, params)
    assert torch.equal(got > 0, expected > 0)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-7)


EDGES = [
    {"top_p": 0.25},
    {"top_p": 0.5},
    {"top_p": 0.75},
    {"min_p": 1.0},
    {"min_p": 0.5},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 3, "top_p": 0.5, "min_p": 0.5},
]


@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_on_an_edge_and_among_equals_the_tokens_of_transformers_remain(edge: dict[str, Any]):
    """Four equal chances, and chances each half of the one before, have sums that are exact in float32."""
    params = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, **edge}
    for logits in (torch.zeros(4), torch.tensor([1.0, 1.0, 2.0, 4.0, 8.0]).log()):
        expected = reference_distribution(logits, torch.tensor([], dtype=torch.int64), params)
        (got,) = probabilities(logits[None], sampling_rows([foveate.SamplingParams(**params)], len(logits)))
        assert torch.equal(got > 0, expected > 0)


@pytest.mark.parametrize("seed", range(3))
def test_sampled_tokens_are_those_of_generate_given_the_same_random_numbers(
    pair_of: Callable[[str], Pair], seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Both take the token of the largest chance over noise, so equal tokens mean equal order and equal settings."""
    pair = pair_of("LFM2.5-VL-1.6B")
    messages = [user(shown(picture(300, 200)), "What is this?")]
    inputs = pair.inputs(messages)
    chosen = {"temperature": 0.8, "top_k": 60, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.1}
    params = foveate.SamplingParams(max_tokens=32, seed=seed, ignore_stop_tokens=True, **chosen)
    ours = list(pair.vlm.chat(messages, params).token_ids)
    drawn = count()

    def multinomial(chances: torch.Tensor, num_samples: int) -> torch.Tensor:
        assert num_samples == 1
        noise = exponential_noise(torch.tensor([[seed]]), torch.tensor([[next(drawn)]]), chances.shape[1])
        return (chances / noise).argmax(1, keepdim=True)

    monkeypatch.setattr(torch, "multinomial", multinomial)
    ids = pair.model.generate(**inputs, do_sample=True, max_new_tokens=32, **chosen)
    assert ours == ids[0, inputs["input_ids"].shape[1] :].tolist()
    assert next(drawn) == 32


def test_a_repetition_penalty_alone_gives_the_greedy_tokens_of_generate(pair_of: Callable[[str], Pair]):
    pair = pair_of("LFM2.5-VL-1.6B")
    messages = [user(shown(picture(300, 200)), "What is this?")]
    inputs = pair.inputs(messages)
    params = foveate.SamplingParams(max_tokens=32, repetition_penalty=1.3, ignore_stop_tokens=True)
    ids = pair.model.generate(**inputs, do_sample=False, max_new_tokens=32, repetition_penalty=1.3)
    assert list(pair.vlm.chat(messages, params).token_ids) == ids[0, inputs["input_ids"].shape[1] :].tolist()

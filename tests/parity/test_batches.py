"""A conversation's numbers do not depend on its company, on how its prompt is cut into chunks, or on page sizes."""

from collections.abc import Callable

import pytest
import torch

import foveate
from tests.parity.pictures import picture, shown, user
from tests.parity.reference import Pair
from tests.parity.running import Run, relative_error

CONVERSATIONS = [
    [user("Hi.")],
    [user(shown(picture(1024, 529)), "What is this, in one word?")],
    [{"role": "system", "content": "Be brief. " * 12}, user(shown(picture(64, 64)), shown(picture(300, 200)))],
    [user("Tell me of the mountain, the river, the bridge and the road to the sea. " * 3)],
]
STEPS = ([1500, 1501, 1502, 1503], [900, 70, 1200, 1300], [1310, 1320, 71, 72])
NAMES = ("LFM2-VL-450M", "LFM2.5-VL-1.6B", "LFM2.5-VL-3B", "saved by transformers")
FLOAT32_BOUND = 1e-5


def on_and_on(count: int) -> foveate.SamplingParams:
    return foveate.SamplingParams(max_tokens=count, ignore_stop_tokens=True)


@pytest.mark.parametrize("name", NAMES)
def test_each_row_of_a_batch_gets_the_tokens_it_gets_alone(pair_of: Callable[[str], Pair], name: str):
    vlm = pair_of(name).vlm
    together = vlm.generate(CONVERSATIONS, on_and_on(24))
    for messages, answer in zip(CONVERSATIONS, together, strict=True):
        alone = vlm.chat(messages, on_and_on(24))
        assert (answer.token_ids, answer.text) == (alone.token_ids, alone.text)


@pytest.mark.parametrize("name", NAMES)
def test_each_row_of_a_batch_has_the_logits_it_has_alone(pair_of: Callable[[str], Pair], name: str):
    """After the prompt, and after each of three tokens, none of them the likeliest."""
    pair = pair_of(name)
    prompts = [pair.prompt(messages) for messages in CONVERSATIONS]
    batch = Run(pair.vlm.model, prompts)
    together = torch.stack([batch.prefill(), *map(batch.step, STEPS)], 1)
    for index, prompt in enumerate(prompts):
        run = Run(pair.vlm.model, [prompt])
        alone = torch.cat([run.prefill(), *(run.step([tokens[index]]) for tokens in STEPS)])
        assert relative_error(together[index], alone) < FLOAT32_BOUND


def test_rows_that_end_early_leave_the_others_as_they_were(pair_of: Callable[[str], Pair]):
    vlm = pair_of("LFM2.5-VL-1.6B").vlm
    lengths = [3, 24, 1, 11]
    together = vlm.generate(CONVERSATIONS, [on_and_on(length) for length in lengths])
    for messages, length, answer in zip(CONVERSATIONS, lengths, together, strict=True):
        assert len(answer.token_ids) == length
        assert answer.token_ids == vlm.chat(messages, on_and_on(length)).token_ids


def test_a_sampled_row_of_a_batch_gets_the_tokens_it_gets_alone(pair_of: Callable[[str], Pair]):
    """Every answer draws from a generator of its own."""
    vlm = pair_of("LFM2.5-VL-1.6B").vlm
    params = [
        foveate.SamplingParams(max_tokens=16, temperature=0.9, seed=seed, ignore_stop_tokens=True) for seed in range(4)
    ]
    together = vlm.generate(CONVERSATIONS, params)
    alone = [vlm.chat(messages, own) for messages, own in zip(CONVERSATIONS, params, strict=True)]
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]


@pytest.mark.parametrize("chunk_tokens", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["LFM2.5-VL-1.6B", "saved by transformers"])
def test_a_prompt_prefilled_in_chunks_has_the_logits_of_one_prefilled_whole(
    pair_of: Callable[[str], Pair], name: str, chunk_tokens: int
):
    """Chunks shorter than a convolution's state included, whose length is 2 in one checkpoint and 3 in the other."""
    pair = pair_of(name)
    prompts = [pair.prompt([user("A ", shown(picture(64, 64)), " what?")]), pair.prompt(CONVERSATIONS[0])]
    whole, chunked = Run(pair.vlm.model, prompts), Run(pair.vlm.model, prompts)
    expected = torch.cat([whole.prefill(), whole.step([1500, 900])])
    got = torch.cat([chunked.prefill(chunk_tokens), chunked.step([1500, 900])])
    assert relative_error(got, expected) < FLOAT32_BOUND


@pytest.mark.parametrize("page_tokens", [1, 5, 256])
def test_the_size_of_pages_does_not_change_the_logits(pair_of: Callable[[str], Pair], page_tokens: int):
    pair = pair_of("LFM2.5-VL-1.6B")
    prompts = [pair.prompt(CONVERSATIONS[0]), pair.prompt(CONVERSATIONS[3])]
    usual, other = Run(pair.vlm.model, prompts), Run(pair.vlm.model, prompts, page_tokens)
    expected = torch.cat([usual.prefill(), usual.step([1500, 900])])
    assert torch.equal(torch.cat([other.prefill(), other.step([1500, 900])]), expected)

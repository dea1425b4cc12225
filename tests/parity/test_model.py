"""Features, logits and answers equal the reference's: to rounding in float32, within its own error in bfloat16."""

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
import torch

import foveate
from tests.folders import edit_json
from tests.parity.pictures import picture, shown, user
from tests.parity.reference import Pair, prompt_of, reference_features, reference_model
from tests.parity.running import Run, features_of, relative_error

PICTURES = (picture(1024, 529), picture(300, 200), picture(90, 400))
CONVERSATIONS = {
    0: [{"role": "system", "content": "Be brief."}, user("Tell me of the river and the sea.")],
    1: [user(shown(PICTURES[1]), " What is this? ")],
    3: [user(shown(PICTURES[0]), " what? ", shown(PICTURES[1]), shown(PICTURES[2]))],
}
FLOAT32_BOUND = 1e-5


def on_and_on(count: int) -> foveate.SamplingParams:
    return foveate.SamplingParams(max_tokens=count, ignore_stop_tokens=True)


def test_image_features_equal_the_reference_s_in_float32(pair: Pair):
    """Three pictures, one of them tiled, under both kinds of tensor names."""
    expected = reference_features(pair.model, pair.inputs(CONVERSATIONS[3]))
    (features,) = features_of(pair.vlm.model, [pair.prompt(CONVERSATIONS[3])])
    assert relative_error(features, expected) < FLOAT32_BOUND


def test_the_last_logits_of_a_prompt_equal_the_reference_s_in_float32(pair: Pair):
    """Three pictures, one of them tiled, under both kinds of tensor names."""
    (logits,) = Run(pair.vlm.model, [pair.prompt(CONVERSATIONS[3])]).prefill()
    assert relative_error(logits, pair.logits(pair.inputs(CONVERSATIONS[3]))) < FLOAT32_BOUND


@torch.inference_mode()
def test_the_logits_of_every_decode_step_equal_a_whole_pass_of_the_reference(kind: Pair):
    """Each step reads what the steps before it wrote into the caches."""
    tokens = [70, 900, 1200, 1201, 1202, 1300, 1301, 1302]
    inputs = kind.inputs(CONVERSATIONS[1])
    run = Run(kind.vlm.model, [kind.prompt(CONVERSATIONS[1])])
    got = [run.prefill()[0], *(run.step([token])[0] for token in tokens)]
    ids = torch.cat([inputs["input_ids"], torch.tensor([tokens])], 1)
    whole = kind.model(**{**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}).logits[0]
    assert relative_error(torch.stack(got), whole[-len(got) :]) < FLOAT32_BOUND


def test_64_greedy_tokens_about_a_picture_equal_the_reference_s_in_float32(kind: Pair):
    answer = kind.vlm.chat(CONVERSATIONS[1], on_and_on(64))
    assert list(answer.token_ids) == kind.greedy(kind.inputs(CONVERSATIONS[1]), 64)


@pytest.mark.parametrize("num_pictures", [0, 3])
@pytest.mark.parametrize("name", ["LFM2-VL-450M", "LFM2-VL-3B", "LFM2.5-VL-3B"])
def test_64_greedy_tokens_about_none_and_about_three_equal_the_reference_s_in_float32(
    pair_of: Callable[[str], Pair], name: str, num_pictures: int
):
    pair, messages = pair_of(name), CONVERSATIONS[num_pictures]
    answer = pair.vlm.chat(messages, on_and_on(64))
    assert list(answer.token_ids) == pair.greedy(pair.inputs(messages), 64)


@torch.inference_mode()
def test_bfloat16_is_at_most_twice_as_far_from_float32_as_the_reference_s(kind: Pair):
    messages = CONVERSATIONS[3]
    inputs = kind.inputs(messages)
    reference = reference_model(kind.folder, torch.bfloat16)
    vlm = foveate.load(kind.folder, device="cpu", dtype="bfloat16")
    prompt = prompt_of(vlm, messages)

    exact = reference_features(kind.model, inputs)
    error = relative_error(features_of(vlm.model, [prompt])[0], exact)
    assert 0 < error <= 2 * relative_error(reference_features(reference, inputs), exact)

    exact = kind.logits(inputs)
    error = relative_error(Run(vlm.model, [prompt]).prefill()[0], exact)
    assert 0 < error <= 2 * relative_error(reference(**inputs).logits[0, -1], exact)


def test_the_test_checkpoints_answer_differently_to_different_pictures(kind: Pair):
    """Otherwise equal answers would say nothing about the pictures."""
    pictures = [picture(200, 200, seed) for seed in range(3)] + [PICTURES[1]]
    answers = [kind.vlm.chat([user(shown(each), "What is this?")], on_and_on(12)).token_ids for each in pictures]
    assert all(one != other for one, other in combinations(answers, 2))
    words_alone = kind.vlm.chat([user("What is this?")], on_and_on(12)).token_ids
    assert words_alone not in answers


def test_an_answer_ends_at_the_checkpoint_s_stop_tokens_as_the_reference_s_does(
    pair_of: Callable[[str], Pair], tmp_path: Path
):
    """A second stop token is taken from the middle of the answer that would go on."""
    pair = pair_of("LFM2.5-VL-1.6B")
    long = pair.vlm.chat(CONVERSATIONS[1], on_and_on(64)).token_ids
    stop = long[20]
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    edit_json(folder / "generation_config.json", eos_token_id=[7, stop])
    answer = foveate.load(folder, device="cpu").chat(CONVERSATIONS[1], foveate.SamplingParams(max_tokens=64))
    inputs = pair.inputs(CONVERSATIONS[1])
    ids = pair.model.generate(**inputs, max_new_tokens=64, do_sample=False, eos_token_id=[7, stop])
    assert list(answer.token_ids) == ids[0, inputs["input_ids"].shape[1] :].tolist()
    assert answer.token_ids == long[: long.index(stop) + 1]
    assert answer.finish_reason == "stop"

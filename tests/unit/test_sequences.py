"""An answer ends at a stop token, at a stop text or at its length, and says which."""

from collections.abc import Sequence as Items

import pytest

import foveate
from foveate.engine.sequence import Sequence
from tests.folders import edit_json

STOP_TOKEN = 0


def decode(tokens: Items[int]) -> str:
    """Tokens are letters; the stop token is no text."""
    return "".join(chr(token) for token in tokens if token)


def sequence(**params: object) -> Sequence:
    return Sequence(foveate.SamplingParams(**params), decode=decode, stop_token_ids=[STOP_TOKEN])


def add_all(answer: Sequence, text: str) -> str:
    """Add a token for each letter, as long as the answer goes on; returns the pieces joined."""
    pieces = []
    for letter in text:
        if answer.is_finished:
            break
        pieces.append(answer.add(ord(letter)))
    return "".join(pieces)


def test_a_stop_token_ends_the_answer_and_is_no_part_of_its_text():
    answer = sequence()
    assert add_all(answer, "abc\0d") == answer.text == "abc"
    assert (answer.finish_reason, answer.token_ids) == ("stop", [97, 98, 99, STOP_TOKEN])


def test_the_length_ends_the_answer():
    answer = sequence(max_tokens=2)
    assert add_all(answer, "abc") == "ab"
    assert answer.finish_reason == "length"


def test_a_stop_text_ends_the_answer_and_is_cut_off():
    answer = sequence(stop=["cd", "x"])
    assert add_all(answer, "abcde") == answer.text == "ab"
    assert (answer.finish_reason, len(answer.token_ids)) == ("stop", 4)


def test_a_stop_text_at_the_last_token_is_a_stop_and_not_a_length():
    answer = sequence(max_tokens=4, stop="cd")
    assert add_all(answer, "abcde") == "ab"
    assert answer.finish_reason == "stop"


def test_the_beginning_of_a_stop_text_is_given_out_when_the_length_ends_the_answer():
    answer = sequence(max_tokens=3, stop="cd")
    assert add_all(answer, "abcde") == "abc"
    assert answer.finish_reason == "length"


def test_stop_tokens_can_be_ignored():
    answer = sequence(max_tokens=5, ignore_stop_tokens=True)
    assert add_all(answer, "ab\0c\0d") == "abc"
    assert answer.finish_reason == "length"


def test_a_streamed_answer_is_the_whole_one_in_pieces(tiny_vlm: foveate.VLM):
    messages = [{"role": "user", "content": "Tell me of the sea."}]
    params = foveate.SamplingParams(max_tokens=40, ignore_stop_tokens=True)
    stream = tiny_vlm.stream(messages, params)
    pieces = list(stream)
    assert "".join(pieces) == stream.answer.text == tiny_vlm.chat(messages, params).text
    assert len(pieces) > 5
    assert all(pieces)


def test_an_answer_asked_for_in_the_middle_of_its_stream_is_complete(tiny_vlm: foveate.VLM):
    messages = [{"role": "user", "content": "Tell me of the sea."}]
    params = foveate.SamplingParams(max_tokens=12, ignore_stop_tokens=True)
    stream = tiny_vlm.stream(messages, params)
    next(iter(stream))
    assert stream.answer.text == tiny_vlm.chat(messages, params).text
    assert list(stream) == []


def test_a_stop_text_of_the_middle_cuts_a_real_answer_there(tiny_vlm: foveate.VLM):
    messages = [{"role": "user", "content": "Tell me of the sea."}]
    whole = tiny_vlm.chat(messages, foveate.SamplingParams(max_tokens=30, ignore_stop_tokens=True)).text
    stop = whole[len(whole) // 2 :][:3]
    params = foveate.SamplingParams(max_tokens=30, ignore_stop_tokens=True, stop=stop)
    answer = tiny_vlm.chat(messages, params)
    assert answer.text == whole.split(stop)[0]
    assert answer.finish_reason == "stop"


def test_a_prompt_and_answer_beyond_the_checkpoint_s_positions_are_refused(tiny_copy):
    edit_json(tiny_copy / "config.json", "text_config", max_position_embeddings=30)
    vlm = foveate.load(tiny_copy, device="cpu")
    messages = [{"role": "user", "content": "Hi."}]
    room = 30 - len(vlm.processor.encode(messages, []).token_ids)
    assert (
        vlm.chat(messages, foveate.SamplingParams(max_tokens=room, ignore_stop_tokens=True)).completion_tokens == room
    )
    with pytest.raises(foveate.errors.PromptError, match=rf"max_tokens is {room + 1}; together they may be at most 30"):
        vlm.chat(messages, foveate.SamplingParams(max_tokens=room + 1))

"""Streamed pieces are the decoded answer: never half a character, and never a part of a stop text."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.engine.text import TextStream


def decode_bytes(tokens: Sequence[int]) -> str:
    """The decoder of a tokenizer whose tokens are single bytes, so that most characters come in parts."""
    return bytes(tokens).decode("utf-8", "replace")


def pieces_of(stream: TextStream, tokens: Sequence[int]) -> list[str]:
    return [*(stream.push(token) for token in tokens), stream.finish()]


words = st.text(alphabet="ab é€🙂", max_size=24)
stops = st.text(alphabet="ab é€🙂", min_size=1, max_size=4)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_text_given_byte_by_byte_comes_out_whole(text: str):
    assert "".join(pieces_of(TextStream(decode_bytes), text.encode())) == text


@settings(deadline=None)
@given(st.text(max_size=30))
def test_no_piece_holds_a_part_of_a_character(text: str):
    """A text without a replacement mark has none in any of its pieces either."""
    pieces = pieces_of(TextStream(decode_bytes), text.replace("\ufffd", "").encode())
    assert not any("\ufffd" in piece for piece in pieces)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_are_no_text_come_out_as_the_decoder_has_them(data: bytes):
    """What was given out before is never taken back: the pieces so far are always a beginning of the whole."""
    stream, so_far = TextStream(decode_bytes), ""
    for byte in data:
        so_far += stream.push(byte)
        assert decode_bytes(data).startswith(so_far)
    assert so_far + stream.finish() == decode_bytes(data)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2047), max_size=30))
def test_any_tokens_of_a_real_tokenizer_come_out_as_it_decodes_them(tiny_vlm: foveate.VLM, tokens: list[int]):
    """Special tokens between the bytes of a character included: they are left out, and the character is whole."""
    decode = tiny_vlm.processor.decode
    assert "".join(pieces_of(TextStream(decode), tokens)) == decode(tokens)


@settings(deadline=None)
@given(words, stops)
def test_the_pieces_end_before_the_stop_text_wherever_tokens_are_cut(text: str, stop: str):
    stream = TextStream(decode_bytes, [stop])
    assert "".join(pieces_of(stream, text.encode())) == text.split(stop)[0]
    assert stream.is_stopped == (stop in text)


@settings(deadline=None)
@given(words, st.lists(stops, max_size=4))
def test_of_several_stop_texts_the_first_that_is_complete_counts(text: str, several: list[str]):
    stream = TextStream(decode_bytes, several)
    result = "".join(pieces_of(stream, text.encode()))
    ends = [
        (end, -len(stop))
        for stop in several
        for end in range(len(stop), len(text) + 1)
        if text[end - len(stop) : end] == stop
    ]
    assert result == (text[: sum(min(ends))] if ends else text)


@settings(deadline=None)
@given(words, st.lists(stops, min_size=1, max_size=4))
def test_no_more_is_held_back_than_may_begin_a_stop_text(text: str, several: list[str]):
    stream, given_out = TextStream(decode_bytes, several), ""
    for end, character in enumerate(text, 1):
        given_out += "".join(stream.push(byte) for byte in character.encode())
        if stream.is_stopped:
            break
        held = text[len(given_out) : end]
        assert not held or any(stop.startswith(held) for stop in several)


def test_a_stop_text_across_a_token_border_is_never_given_out_in_part():
    pieces = {1: "see", 2: " the E", 3: "N", 4: "D of it"}
    stream = TextStream(lambda tokens: "".join(pieces[token] for token in tokens), ["END"])
    assert [stream.push(token) for token in (1, 2, 3, 4, 1)] == ["see", " the ", "", "", ""]
    assert stream.is_stopped
    assert stream.finish() == ""


def test_what_only_looked_like_a_stop_text_is_given_out_at_the_end():
    stream = TextStream(decode_bytes, ["END"])
    assert [stream.push(byte) for byte in b"aEN"] == ["a", "", ""]
    assert stream.finish() == "EN"


@pytest.mark.parametrize("data", ["é".encode()[:1], "🙂".encode()[:3]])
def test_half_a_character_at_the_very_end_is_one_replacement_mark(data: bytes):
    stream = TextStream(decode_bytes)
    assert [stream.push(byte) for byte in data] == [""] * len(data)
    assert stream.finish() == "\ufffd"


def test_a_stop_text_that_half_a_character_would_complete_stops_the_end():
    """The mark that half a character becomes may itself be asked for."""
    stream = TextStream(decode_bytes, ["\ufffd"])
    assert "".join(pieces_of(stream, b"ab\xf0\x9f")) == "ab"
    assert stream.is_stopped

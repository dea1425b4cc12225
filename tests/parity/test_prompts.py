"""Conversations become the token ids of the reference's processor and chat template."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.checkpoints import layout
from tests.parity.pictures import picture, said, shown, user
from tests.parity.reference import Pair

SMALL, WIDE, TILED = picture(64, 48), picture(600, 90), picture(1376, 768)
SYSTEM = {"role": "system", "content": "You are a helpful multimodal assistant."}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [said(text)]}


CONVERSATIONS = {
    "a text": [user("What is a picture?")],
    "a text as a part": [user(said("What is a picture?"))],
    "an empty text": [user("")],
    "no part": [{"role": "user", "content": []}],
    "blanks around": [user("  \t what?  ")],
    "newlines around": [user("\n\n what?\r\n\n")],
    "only blanks": [user(said(" \n "), shown(SMALL), said(" \n "))],
    "other scripts": [user("Čo je to? これは何ですか。 ما هذا؟ \u0301e\u0301 \u2028")],
    "emoji of several characters": [user(shown(SMALL), "👩‍👩‍👧‍👦🏳️‍🌈 what is\u200d this?")],
    "control characters": [user("a\x00b\x1fc\x7f\ufeff\ufffd")],
    "markup": [user("<b>bold</b> <|im_st <image1> [INST] </s> <|reserved_|>")],
    "a long text": [user("describe the large yellow house near the lake " * 60)],
    "a system prompt": [SYSTEM, user(shown(SMALL), "What is this?")],
    "several turns": [
        SYSTEM,
        user(shown(SMALL), "What is this?"),
        assistant("A picture. "),
        user("\nAnd this? ", shown(WIDE)),
        assistant(" Another."),
        user("Sure?"),
    ],
    "a tool's answer": [user("Count."), assistant("4"), {"role": "tool", "content": "4"}, user("So?")],
    "picture, then text": [user(shown(SMALL), "What is this?")],
    "text, then picture": [user("What is this?", shown(SMALL))],
    "text around a picture": [user("This ", shown(SMALL), " is what?")],
    "text between pictures": [user(shown(SMALL), " and\n", shown(WIDE))],
    "only a picture": [user(shown(SMALL))],
    "three pictures in a row": [user(shown(SMALL), shown(TILED), shown(WIDE), "Compare them.")],
    "three pictures apart": [user("A", shown(TILED), said("B"), shown(SMALL), "C", shown(WIDE), "D")],
    "texts in a row": [user("one ", "two", " three", shown(SMALL), "four ", " five")],
    "one picture twice": [user(shown(WIDE), shown(WIDE), "The same?")],
}


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_has_the_token_ids_of_the_reference(kind: Pair, messages: list[dict[str, Any]]):
    assert kind.prompt(messages).token_ids == kind.inputs(messages)["input_ids"][0].tolist()


SPECIAL = tuple(layout("LFM2.5-VL-1.6B").special_tokens.by_id().values())
texts = st.text(max_size=40).filter(lambda text: "\ufdd0" not in text and not any(token in text for token in SPECIAL))


@settings(max_examples=60, deadline=None)
@given(system=texts, before=texts, after=texts)
def test_any_text_around_a_picture_has_the_token_ids_of_the_reference(pair_of, system: str, before: str, after: str):
    pair = pair_of("LFM2.5-VL-1.6B")
    messages = [{"role": "system", "content": system}, user(said(before), shown(SMALL), said(after))]
    assert pair.prompt(messages).token_ids == pair.inputs(messages)["input_ids"][0].tolist()

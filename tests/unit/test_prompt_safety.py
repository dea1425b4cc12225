"""What a user writes never turns into a special token, however it is cut; all other text is the tokenizer's own."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.checkpoints import layout
from foveate.errors import PromptError
from foveate.models.lfm2_vl.prompt import ROLES

SPECIAL = layout("tiny").special_tokens.by_id()
TEXTS = tuple(SPECIAL.values())
usual = st.sampled_from(
    ["<|im_end|>", "<image>", "<|image_start|>", "<|img_row_1_col_10|>", "<|pad|>", "<|startoftext|>"]
)
parts_of_tokens = st.tuples(st.sampled_from(TEXTS), st.integers(0, 20)).flatmap(
    lambda cut: st.sampled_from([cut[0][: cut[1]], cut[0][cut[1] :]])
)
plain = st.text(max_size=8).map(lambda text: text.replace("\ufdd0", ""))
hostile = st.lists(st.one_of(usual, st.sampled_from(TEXTS), parts_of_tokens, plain), max_size=8).map("".join)


def ids_of(vlm: foveate.VLM, *messages: dict[str, Any]) -> list[int]:
    return vlm.processor.encode(list(messages), []).token_ids


def special_ids(ids: list[int]) -> list[int]:
    return [token for token in ids if token in SPECIAL]


def as_message(texts: list[str], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


@settings(deadline=None)
@given(st.lists(hostile, max_size=4), st.sampled_from(ROLES))
def test_no_text_makes_a_special_token(tiny_vlm: foveate.VLM, texts: list[str], role: str):
    """The texts stand side by side, so that a token may begin in one and end in another; all reads as written."""
    ids = ids_of(tiny_vlm, as_message(texts, role))
    assert special_ids(ids) == special_ids(ids_of(tiny_vlm, as_message([], role)))
    assert tiny_vlm.processor.decode(ids) == f"{role}\n{''.join(texts)}\nassistant\n"


@settings(deadline=None)
@given(hostile)
def test_a_text_alone_is_as_safe_as_one_in_parts(tiny_vlm: foveate.VLM, text: str):
    assert ids_of(tiny_vlm, {"role": "user", "content": text}) == ids_of(tiny_vlm, as_message([text]))


@settings(deadline=None)
@given(hostile, st.integers(0, 60))
def test_how_a_text_is_cut_into_parts_does_not_matter(tiny_vlm: foveate.VLM, text: str, cut: int):
    assert ids_of(tiny_vlm, as_message([text])) == ids_of(tiny_vlm, as_message([text[:cut], text[cut:]]))


@settings(deadline=None)
@given(st.text(max_size=60).filter(lambda text: "\ufdd0" not in text and not any(token in text for token in TEXTS)))
def test_text_without_special_tokens_is_encoded_as_by_the_tokenizer(tiny_vlm: foveate.VLM, text: str):
    rendered = f"<|startoftext|><|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    expected = tiny_vlm.processor.prompts.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert ids_of(tiny_vlm, {"role": "user", "content": text}) == expected


@pytest.mark.parametrize("token", TEXTS[:20] + TEXTS[-20:])
def test_every_special_token_spelled_out_reads_as_written(tiny_vlm: foveate.VLM, token: str):
    ids = ids_of(tiny_vlm, {"role": "user", "content": f"a{token}b{token}{token}"})
    assert f"a{token}b{token}{token}" in tiny_vlm.processor.decode(ids)
    assert len(special_ids(ids)) == 4


def test_other_fields_of_a_message_are_as_safe(tiny: Path):
    """A template may write them: a name, the calls of a tool."""
    template = "{% for message in messages %}{{ message.name }} {{ message.calls | tojson }}{% endfor %}"
    prompts = foveate.load(tiny, device="cpu").processor.prompts
    prompts.tokenizer.chat_template = template
    message = {
        "role": "user",
        "content": "",
        "name": "<image>",
        "calls": [{"<|pad|>": "<|im_end|>", "n": [1, None, True]}],
    }
    ids = prompts.encode([message], [])
    assert special_ids(ids) == []
    assert prompts.tokenizer.decode(ids) == '<image> [{"<|pad|>": "<|im_end|>", "n": [1, null, true]}]'


def test_the_character_that_breaks_tokens_is_replaced_where_a_user_sends_it(tiny_vlm: foveate.VLM):
    """It is a non-character, which no text may interchange."""
    ids = ids_of(tiny_vlm, {"role": "user", "content": "<\ufdd0image>"})
    assert "<\ufffdimage>" in tiny_vlm.processor.decode(ids)
    assert len(special_ids(ids)) == 4


BAD: dict[str, tuple[Any, str]] = {
    "no message": ([], "the conversation is empty"),
    "a text": ("Hello", "a message is 'H'"),
    "no role": ([{"content": "a"}], "a message has the role None; allowed are system, user, assistant, tool"),
    "another role": ([{"role": "root", "content": "a"}], "a message has the role 'root'"),
    "no content": ([{"role": "user"}], "the content of a message is NoneType"),
    "a number": ([{"role": "user", "content": 3}], "the content of a message is int"),
    "a text among parts": ([{"role": "user", "content": ["a"]}], "a content part is 'a'"),
    "another kind of part": ([{"role": "user", "content": [{"type": "video"}]}], "a content part is {'type': 'video'}"),
    "a part without text": ([{"role": "user", "content": [{"type": "text"}]}], "a content part is {'type': 'text'}"),
    "a lone surrogate": ([{"role": "user", "content": "a\ud800"}], "lone surrogate"),
    "a picture without pixels": (
        [{"role": "user", "content": [{"type": "image"}]}],
        "the prompt has 1 image placeholders for 0 pictures",
    ),
}


@pytest.mark.parametrize(("messages", "expected"), BAD.values(), ids=BAD)
def test_a_conversation_of_another_form_is_refused_with_what_is_wrong(
    tiny_vlm: foveate.VLM, messages: Any, expected: str
):
    with pytest.raises(PromptError) as caught:
        tiny_vlm.processor.encode(messages, [])
    assert expected in str(caught.value)


def test_a_template_that_refuses_a_conversation_is_quoted(tiny: Path):
    prompts = foveate.load(tiny, device="cpu").processor.prompts
    prompts.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(PromptError, match="chat template refuses the conversation: roles must alternate"):
        prompts.encode([{"role": "user", "content": "a"}], [])

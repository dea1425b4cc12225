"""The tokenizer: ids where a layout has them, text that survives, words that are one token, and a chat template."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from foveate.checkpoints import LAYOUT_NAMES, CheckpointLayout, layout, new_checkpoint, shrunk
from foveate.checkpoints.tokenizer import CHAT_TEMPLATE, spoken_ids, tokenizer_config, tokenizer_json
from foveate.errors import ConfigurationError


def write_tokenizer(folder: Path, chosen: CheckpointLayout) -> PreTrainedTokenizerFast:
    (folder / "tokenizer.json").write_text(tokenizer_json(chosen), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(chosen)), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=["tiny", "LFM2.5-VL-3B"])
def chosen(request: pytest.FixtureRequest) -> CheckpointLayout:
    """A small vocabulary with the special tokens first, and the largest, with the special tokens near its end."""
    return layout(request.param)


@pytest.fixture(scope="module")
def tokenizer(chosen: CheckpointLayout, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), chosen)


def test_the_vocabulary_has_exactly_the_layouts_size(
    chosen: CheckpointLayout, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Every id below the vocabulary's size is a token, and there is none above."""
    assert len(tokenizer) == chosen.vocabulary_tokens
    assert sorted(tokenizer.get_vocab().values()) == list(range(chosen.vocabulary_tokens))


def test_special_tokens_have_the_layouts_ids(chosen: CheckpointLayout, tokenizer: PreTrainedTokenizerFast) -> None:
    """Every special token, read from text, gives its one id, also in the middle of a word."""
    for number, text in chosen.special_tokens.by_id().items():
        assert tokenizer.encode(f"be{text}fore", add_special_tokens=False).count(number) == 1
    assert tokenizer.bos_token_id == chosen.special_tokens.beginning_id
    assert tokenizer.eos_token_id == chosen.special_tokens.end_id
    assert tokenizer.pad_token_id == chosen.special_tokens.pad_id


def test_the_processor_finds_the_image_tokens(chosen: CheckpointLayout, tokenizer: PreTrainedTokenizerFast) -> None:
    """The names by which transformers' processor asks for the image tokens lead to their ids."""
    assert tokenizer.image_token_id == chosen.special_tokens.image_id
    assert tokenizer.image_start_token_id == chosen.special_tokens.image_id + 102
    assert tokenizer.image_end_token_id == chosen.special_tokens.image_id + 103


def test_a_prompt_begins_with_the_begin_token_once(
    chosen: CheckpointLayout, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Encoding adds the begin token and nothing else; encoding without special tokens adds nothing."""
    bare = tokenizer.encode("the picture", add_special_tokens=False)
    assert tokenizer.encode("the picture") == [chosen.special_tokens.beginning_id, *bare]


@given(text=st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_survives(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    """Decoding what any text was encoded to gives the text back, whatever its script, spaces or control characters."""
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@given(parts=st.lists(st.sampled_from([" the", " bako", "<image>", "<|im_end|>", "é", "\n", " ", "ü", "?!", "2 "])))
@settings(max_examples=100, deadline=None)
def test_text_with_special_tokens_survives(tokenizer: PreTrainedTokenizerFast, parts: list[str]) -> None:
    """Special tokens between words come back with exactly the spaces that were around them."""
    text = "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_every_word_is_said_and_read_as_one_token(chosen: CheckpointLayout, tokenizer: PreTrainedTokenizerFast) -> None:
    """Each token that is text of its own, encoded again, is that token: none is hidden behind another merge."""
    special = chosen.special_tokens.by_id()
    ordinary = [number for number in range(chosen.vocabulary_tokens) if number not in special]
    texts = dict(zip(ordinary, tokenizer.backend_tokenizer.decode_batch([[n] for n in ordinary]), strict=True))
    whole = {number: text for number, text in texts.items() if "\N{REPLACEMENT CHARACTER}" not in text}
    encodings = tokenizer.backend_tokenizer.encode_batch(list(whole.values()), add_special_tokens=False)
    assert [encoding.ids for encoding in encodings] == [[number] for number in whole]
    assert len(whole) > chosen.vocabulary_tokens - len(special) - 256


def test_common_words_are_one_token_in_a_large_vocabulary() -> None:
    """An English sentence about a picture takes one token a word."""
    tokenizer = Tokenizer.from_str(tokenizer_json(layout("LFM2.5-VL-1.6B")))
    sentence = " the picture shows a small brown dog and two people on the street"
    assert tokenizer.encode(sentence, add_special_tokens=False).tokens == ["Ġ" + word for word in sentence.split()]


def test_random_answers_can_be_read() -> None:
    """What a model made here may say consists of letters, one space before each word."""
    chosen = layout("tiny")
    tokenizer = Tokenizer.from_str(tokenizer_json(chosen))
    for number in spoken_ids(chosen):
        text = tokenizer.decode([number])
        assert text.startswith(" ")
        assert text[1:].isalpha()
        assert text[1:].islower()


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_a_checkpoint_of_any_layout_loads_its_tokenizer(name: str, tmp_path: Path) -> None:
    """AutoTokenizer reads the folder of every form of checkpoint, the first revision's among them."""
    chosen = layout(name) if name == "tiny" else shrunk(layout(name))
    folder = new_checkpoint(tmp_path / "checkpoint", chosen)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_tokens_to_ids("<image>") == chosen.special_tokens.image_id


def test_the_largest_vocabulary_is_built_and_used_quickly() -> None:
    """The 128,000 tokens are built within three seconds of a core, and a page is encoded within a tenth of one."""
    start = time.process_time()
    text = tokenizer_json(layout("LFM2.5-VL-3B"))
    assert time.process_time() - start < 3
    tokenizer = Tokenizer.from_str(text)
    page = "What is in the picture? Two dogs, 17 birds and ünïcödé. " * 60
    start = time.process_time()
    tokenizer.encode(page)
    assert time.process_time() - start < 0.1


@pytest.mark.parametrize(("vocabulary_tokens", "bound"), [(800, "at least 927"), (1_000_000, r"at most 65\d{4}")])
def test_a_vocabulary_of_impossible_size_is_refused(vocabulary_tokens: int, bound: str) -> None:
    """Fewer tokens than special ones, bytes and syllables, or more than there are words, is an error that says so."""
    tiny = layout("tiny")
    changed = replace(tiny, config={**tiny.config, "text_config": {**tiny.text, "vocab_size": vocabulary_tokens}})
    with pytest.raises(ConfigurationError, match=rf"vocab_size is {vocabulary_tokens}: .* {bound} tokens"):
        tokenizer_json(changed)


CONVERSATION = [
    {"role": "system", "content": "You see."},
    {
        "role": "user",
        "content": [{"type": "image"}, {"type": "text", "text": "What is "}, {"type": "text", "text": "it?"}],
    },
    {"role": "assistant", "content": "A dog.\n"},
    {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "image"}]},
]


def test_the_chat_template_lays_a_conversation_out(tokenizer: PreTrainedTokenizerFast) -> None:
    """Begin token, each message between its markers with its role, images where they stand, and nothing stripped."""
    rendered = tokenizer.apply_chat_template(CONVERSATION, tokenize=False, add_generation_prompt=True)
    assert rendered == (
        "<|startoftext|><|im_start|>system\nYou see.<|im_end|>\n"
        "<|im_start|>user\n<image>What is it?<|im_end|>\n"
        "<|im_start|>assistant\nA dog.\n<|im_end|>\n"
        "<|im_start|>user\nAnd <image><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_without_a_generation_prompt_the_conversation_ends(tokenizer: PreTrainedTokenizerFast) -> None:
    """The assistant's marker is left out where no answer is asked for."""
    rendered = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    assert rendered.endswith("<|im_start|>user\nAnd <image><|im_end|>\n")

"""A byte-level tokenizer with LFM2-VL's special tokens at their places, and words of its own.

None of its vocabulary comes from a published tokenizer: besides the special tokens it has the 256 bytes, syllables,
common English words and invented words, so whatever a random model says can be read aloud.
"""

from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from foveate.checkpoints.layout import CheckpointLayout
from foveate.checkpoints.words import COMMON_WORDS, SPACE, filler_merges, is_word, syllables
from foveate.errors import ConfigurationError

__all__ = ["CHAT_TEMPLATE", "spoken_ids", "tokenizer_config", "tokenizer_json"]

_Pair = tuple[str, str]

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- "<|im_start|>" + message.role + "\\n" -}}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- else -%}
        {%- for part in message.content -%}
            {%- if part.type == "image" -%}
                {{- "<image>" -}}
            {%- elif part.type == "text" -%}
                {{- part.text -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{- "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""
"""chat_template.jinja: the begin token, every message between its markers, and the assistant's marker to go on from."""


def tokenizer_json(layout: CheckpointLayout) -> str:
    """The text of tokenizer.json: exactly `layout.vocabulary_tokens` tokens, the special ones at the layout's ids.

    Raises:
        ConfigurationError: the vocabulary is too small for the special tokens and bytes, or too large for the words.
    """
    special = layout.special_tokens.by_id()
    tokens, merges = _tokens_and_merges(layout)
    tokenizer = Tokenizer(BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    beginning = special[layout.special_tokens.beginning_id]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{beginning} $A", pair=None, special_tokens=[(beginning, layout.special_tokens.beginning_id)]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    return str(tokenizer.to_str(pretty=False))


def tokenizer_config(layout: CheckpointLayout) -> dict[str, Any]:
    """The JSON of tokenizer_config.json, with the extra names by which the image tokens are found."""
    tokens, text = layout.special_tokens, layout.special_tokens.by_id()
    image_tokens = {
        "image_end_token": "<|image_end|>",
        "image_start_token": "<|image_start|>",
        "image_thumbnail": "<|img_thumbnail|>",
        "image_token": text[tokens.image_id],
    }
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": False,
        "bos_token": text[tokens.beginning_id],
        # Cleaning up would eat spaces before punctuation: decoding would no longer give back what was encoded.
        "clean_up_tokenization_spaces": False,
        "eos_token": text[tokens.end_id],
        "extra_special_tokens": image_tokens,
        **image_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": text[tokens.pad_id],
        "processor_class": "Lfm2VlProcessor",
        "return_token_type_ids": False,
        "spaces_between_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def spoken_ids(layout: CheckpointLayout) -> list[int]:
    """The ids of the tokens that read as whole words: no special tokens, bytes or pieces of words."""
    special = layout.special_tokens.by_id()
    tokens, _ = _tokens_and_merges(layout)
    return [number for number, token in enumerate(tokens) if number not in special and is_word(token)]


def _tokens_and_merges(layout: CheckpointLayout) -> tuple[list[str], list[_Pair]]:
    special = layout.special_tokens.by_id()
    others = len(special) + 256
    merges = _merges(layout.vocabulary_tokens - others)
    if others + len(merges) != layout.vocabulary_tokens:
        bound = "at least" if others + len(merges) > layout.vocabulary_tokens else "at most"
        raise ConfigurationError(
            f"vocab_size is {layout.vocabulary_tokens}: with its special tokens, bytes, syllables and words "
            f"a tokenizer has {bound} {others + len(merges)} tokens; change vocab_size"
        )
    ordinary = iter([*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)])
    return [special.get(number) or next(ordinary) for number in range(layout.vocabulary_tokens)], merges


def _merges(count: int) -> list[_Pair]:
    """Syllables alone and after a space, common words in up to half the rest, and filler: `count`, or what there is."""
    parts = list(syllables())
    merges: dict[str, _Pair] = {part: (part[0], part[1]) for part in parts}
    merges |= {SPACE + part: (SPACE, part) for part in parts}
    room_for_common = (count + len(merges)) // 2
    for token, pair in _common_word_merges(merges):
        if len(merges) >= room_for_common:
            break
        merges[token] = pair
    for left, right in filler_merges():
        if len(merges) >= count:
            break
        merges.setdefault(left + right, (left, right))
    return list(merges.values())


def _common_word_merges(merges: dict[str, _Pair]) -> Iterator[tuple[str, _Pair]]:
    """Merges that join each word from its beginning. `merges` may grow between two of them, by the one just yielded."""
    for word in COMMON_WORDS:
        pieces = _split_into_syllables(word)
        joined = SPACE
        for piece in pieces:
            if joined + piece not in merges:
                yield joined + piece, (joined, piece)
            joined += piece


def _split_into_syllables(word: str) -> list[str]:
    """The pieces that merging every syllable first leaves: "picture" is pi, c, tu, re."""
    known, pieces, place = set(syllables()), [], 0
    while place < len(word):
        length = 2 if word[place : place + 2] in known else 1
        pieces.append(word[place : place + length])
        place += length
    return pieces

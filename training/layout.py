"""The shape of the demo model: LFM2-VL exactly, with 4.9 million parameters and a tokenizer of bytes."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from foveate.checkpoints import CheckpointLayout, SpecialTokens
from foveate.checkpoints.forms import nested
from foveate.checkpoints.sections import text, vision

VOCABULARY_TOKENS = 384
VISION_WIDTH, VISION_LAYERS, VISION_HEADS, VISION_INNER = 192, 6, 4, 512
TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS, TEXT_KEY_HEADS, TEXT_INNER = 192, 8, 4, 2, 288
PROJECTOR_WIDTH = 256
ATTENTION_AT = (1, 3, 4, 6, 7)
SPECIAL = SpecialTokens(first_id=0, image_id=14)


def demo_layout() -> CheckpointLayout:
    """Return the demo model's configuration files; tiles and thumbnail are those of LFM2.5-VL-1.6B."""
    language = {
        **text(TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS, TEXT_INNER, ATTENTION_AT),
        "block_auto_adjust_ff_dim": False,
        "num_key_value_heads": TEXT_KEY_HEADS,
        "vocab_size": VOCABULARY_TOKENS,
        "max_position_embeddings": 32768,
    }
    tower = vision(VISION_WIDTH, VISION_LAYERS, VISION_HEADS, VISION_INNER)
    layout = nested("foveate-demo", vision=tower, text=language, special_tokens=SPECIAL)
    config = {**layout.config, "projector_hidden_size": PROJECTOR_WIDTH}
    return CheckpointLayout(
        name=layout.name,
        config=config,
        generation=layout.generation,
        processor=layout.processor,
        preprocessor=None,
        special_tokens=SPECIAL,
    )


def demo_tokenizer_json() -> str:
    """Return the text of tokenizer.json: the special tokens, then one token for every byte, then reserved ones."""
    special = SPECIAL.by_id()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [
        special.get(number) or (alphabet.pop(0) if alphabet else f"<|reserved_{number}|>")
        for number in range(VOCABULARY_TOKENS)
    ]
    tokenizer = Tokenizer(BPE(vocab={name: number for number, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    beginning = special[SPECIAL.beginning_id]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{beginning} $A", pair=None, special_tokens=[(beginning, SPECIAL.beginning_id)]
    )
    reserved = [name for name in names if name.startswith("<|reserved_")]
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in dict.fromkeys((*special.values(), *reserved))]
    )
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False)

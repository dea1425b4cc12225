"""The layouts against what is published of the six checkpoints, and against the models transformers builds of them."""

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

from foveate.checkpoints import LAYOUT_NAMES, CheckpointLayout, layout, shrunk
from foveate.checkpoints.inventory import inventory
from foveate.errors import ConfigurationError

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"
PUBLISHED = LAYOUT_NAMES[:-1]


def fixture(name: str) -> Any:
    return json.loads((CONFIGS / name).read_text())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("LFM2-VL-450M", 450_822_656),
        ("LFM2-VL-1.6B", 1_584_804_000),
        ("LFM2-VL-3B", 2_998_975_216),
        ("LFM2.5-VL-450M", 448_718_848),
        ("LFM2.5-VL-1.6B", 1_596_625_904),
        ("LFM2.5-VL-3B", 3_123_483_888),
    ],
)
def test_parameters_are_counted_as_published(name: str, parameters: int) -> None:
    """Each public layout has exactly the published number of parameters."""
    assert sum(spec.elements for spec in inventory(layout(name))) == parameters


@pytest.mark.parametrize(
    ("name", "tensors", "digest"),
    [
        ("LFM2.5-VL-450M", 349, "08f544b4495804ed842a37acf0936544ec88aa5d947bef8304a47816fee5b1a7"),
        ("LFM2.5-VL-1.6B", 589, "24728d0ed10229e788c5b9baf25e0cc6c92c93b9cdb12ebb252a3c140a861703"),
        ("LFM2.5-VL-3B", 707, "e3283ed03ea93608145b2b426ba9eb5205f419272275484841c54aabdafe6b80"),
    ],
)
def test_tensor_names_and_shapes_are_the_published_ones(name: str, tensors: int, digest: str) -> None:
    """The inventory, written as lines of name, type and shape, has the SHA-256 of the official file's inventory."""
    specs = inventory(layout(name))
    lines = "".join(f"{spec.name}\tBF16\t{','.join(map(str, spec.shape))}\n" for spec in specs)
    assert len(specs) == tensors
    assert hashlib.sha256(lines.encode()).hexdigest() == digest


def test_configuration_files_are_the_published_ones() -> None:
    """LFM2.5-VL-1.6B's files, and the processor's of LFM2.5-VL-3B, equal the official JSON key for key."""
    chosen = layout("LFM2.5-VL-1.6B")
    assert chosen.config == fixture("LFM2.5-VL-1.6B.config.json")
    assert chosen.generation == fixture("LFM2.5-VL-1.6B.generation_config.json")
    assert chosen.processor == fixture("LFM2.5-VL-1.6B.processor_config.json")
    assert layout("LFM2.5-VL-3B").processor == fixture("LFM2.5-VL-3B.processor_config.json")


def test_special_tokens_are_where_the_published_tokenizers_have_them() -> None:
    """Control tokens, image token and tile markers have the ids of both families of tokenizers."""
    start, end = layout("LFM2.5-VL-1.6B").special_tokens, layout("LFM2.5-VL-3B").special_tokens
    assert (start.pad_id, start.beginning_id, start.end_id, start.image_id) == (0, 1, 7, 396)
    assert (end.pad_id, end.beginning_id, end.end_id, end.image_id) == (124893, 124894, 124900, 124907)
    texts = start.by_id()
    assert [texts[number] for number in (2, 6, 7, 396)] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"]
    assert [texts[number] for number in (397, 406, 407, 496)] == [
        "<|img_row_1_col_1|>",
        "<|img_row_1_col_10|>",
        "<|img_row_2_col_1|>",
        "<|img_row_10_col_10|>",
    ]
    markers = ["<|img_thumbnail|>", "<|image_start|>", "<|image_end|>"]
    assert [texts[number] for number in (497, 498, 499)] == markers
    assert [end.by_id()[number] for number in (125008, 125009, 125010)] == markers


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """A misspelt layout is refused with the list of all names; the organisation's name may stand before it."""
    with pytest.raises(ConfigurationError, match=r"'LFM2-VL-2B'.*LFM2\.5-VL-1\.6B.*tiny"):
        layout("LFM2-VL-2B")
    assert layout("LiquidAI/LFM2-VL-3B") is layout("LFM2-VL-3B")


def reference_state(chosen: CheckpointLayout) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the model transformers builds; it knows no dropped layer, so it is told the stored number."""
    config = copy.deepcopy(dict(chosen.config))
    config["vision_config"]["num_hidden_layers"] = chosen.vision_layers_stored
    config.pop("model_type")
    with torch.device("meta"):
        model = Lfm2VlForConditionalGeneration(Lfm2VlConfig(**config))
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name != "lm_head.weight"}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("small", [False, True], ids=["full", "shrunk"])
def test_transformers_builds_the_same_tensors(name: str, small: bool) -> None:
    """The model transformers builds from the configuration has the inventory's names and shapes, full and shrunk."""
    chosen = shrunk(layout(name)) if small else layout(name)
    assert {spec.named("transformers"): spec.shape for spec in inventory(chosen)} == reference_state(chosen)


def peculiarities(chosen: CheckpointLayout) -> dict[str, Any]:
    """What tells one public checkpoint from another, except sizes."""
    config, text = chosen.config, chosen.text
    shared = {"config", "text_config", "vision_config", "projector_hidden_size", "image_token_id", "image_token_index"}
    return {
        "rest of config": {key: value for key, value in config.items() if key not in shared},
        "image token key": sorted({"image_token_id", "image_token_index"} & config.keys()),
        "keys": (sorted(text), sorted(chosen.vision)),
        "files": (chosen.processor, chosen.preprocessor),
        "norm in the projector": chosen.projector_has_norm,
        "dropped vision layers": chosen.vision["num_hidden_layers"] - chosen.vision_layers_stored,
        "feed-forward adjusted": text["block_auto_adjust_ff_dim"],
        "feed-forward rounded": chosen.feed_forward_width * 3 != text["intermediate_size"] * 2,
        "kinds of layer": set(text["layer_types"]),
        "ends with two convolutions": text["layer_types"][-2:] == ["conv", "conv"],
        "query heads per key head": text["num_attention_heads"] // text["num_key_value_heads"],
        "special tokens at the start": chosen.special_tokens.first_id == 0,
        "ordinary tokens after the special ones": chosen.special_tokens.last_id + 1 < chosen.vocabulary_tokens,
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_shrinking_keeps_every_peculiarity(name: str) -> None:
    """A shrunk layout differs from its large one in sizes only, and its tensors take less than 5 MB in bfloat16."""
    large = layout(name)
    small = shrunk(large)
    assert peculiarities(small) == peculiarities(large)
    assert 2 * sum(spec.elements for spec in inventory(small)) < 5_000_000


def test_tiny_is_the_small_lfm2_5_1_6b() -> None:
    """`tiny` differs from LFM2.5-VL-1.6B shrunk in its name only."""
    tiny, small = layout("tiny"), shrunk(layout("LFM2.5-VL-1.6B"))
    assert (tiny.config, tiny.processor, tiny.special_tokens) == (small.config, small.processor, small.special_tokens)


def test_shrinking_twice_is_refused() -> None:
    """A layout without a small size, such as a small one, is refused with the size that is missing."""
    with pytest.raises(ConfigurationError, match=r"cannot shrink 'tiny'.*\(128, 384\)"):
        shrunk(layout("tiny"))

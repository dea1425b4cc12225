"""The six public LFM2-VL checkpoints, and `tiny`, by name.

LFM2.5-VL-1.6B's files, and LFM2-VL-450M's first revision, are the published ones key for key. The other four have the
published sizes, ids and switches in the form of their release.

LFM2-VL-1.6B's configuration counts 27 vision layers and takes the features of the last but one; its tensor file holds
the 26 that are used.
"""

from functools import cache

from foveate.checkpoints.forms import first_revision, nested, ported
from foveate.checkpoints.layout import CheckpointLayout, SpecialTokens
from foveate.checkpoints.sections import text, vision
from foveate.checkpoints.shrinking import shrunk
from foveate.errors import ConfigurationError

__all__ = ["LAYOUT_NAMES", "layout"]

_VISION_BASE = vision(hidden=768, layers=12, heads=12, intermediate=3072)
_VISION_LARGE = vision(hidden=1152, layers=27, heads=16, intermediate=4304)

_ATTENTION_OF_16 = (2, 5, 8, 10, 12, 14)
_ATTENTION_OF_30 = (2, 5, 9, 13, 17, 21, 24, 27)
_TEXT_350M = text(hidden=1024, layers=16, heads=16, raw_width=6656, attention_at=_ATTENTION_OF_16)
_TEXT_1_2B = text(hidden=2048, layers=16, heads=32, raw_width=12288, attention_at=_ATTENTION_OF_16)
_TEXT_2_6B = {
    **text(hidden=2048, layers=30, heads=32, raw_width=10752, attention_at=_ATTENTION_OF_30),
    "block_auto_adjust_ff_dim": False,
}
_TOKENS_AT_END = SpecialTokens(first_id=124893, image_id=124907)

_PUBLISHED = (
    first_revision(
        "LFM2-VL-450M",
        vision=_VISION_BASE,
        text={**_TEXT_350M, "_name_or_path": "LiquidAI/LFM2-350M"},
        vision_feature_layer=-1,
        use_thumbnail=False,
    ),
    first_revision(
        "LFM2-VL-1.6B",
        vision=_VISION_LARGE,
        text={**_TEXT_1_2B, "_name_or_path": "LiquidAI/LFM2-1.2B"},
        vision_feature_layer=-2,
        use_thumbnail=True,
    ),
    ported(
        "LFM2-VL-3B",
        vision=_VISION_LARGE,
        text={**_TEXT_2_6B, "_name_or_path": "LiquidAI/LFM2-2.6B"},
    ),
    nested(
        "LFM2.5-VL-450M",
        vision=_VISION_BASE,
        text={**_TEXT_350M, "_name_or_path": "LiquidAI/LFM2.5-350M"},
    ),
    nested(
        "LFM2.5-VL-1.6B",
        vision=_VISION_LARGE,
        text={**_TEXT_1_2B, "_name_or_path": "LiquidAI/LFM2-1.2B"},
    ),
    nested(
        "LFM2.5-VL-3B",
        vision=_VISION_LARGE,
        text={
            **_TEXT_2_6B,
            "_name_or_path": "LiquidAI/LFM2.5-2.6B",
            "bos_token_id": _TOKENS_AT_END.beginning_id,
            "eos_token_id": _TOKENS_AT_END.end_id,
            "pad_token_id": _TOKENS_AT_END.pad_id,
            "vocab_size": 128000,
        },
        special_tokens=_TOKENS_AT_END,
        min_tiles=1,
        resample=3,
    ),
)

LAYOUT_NAMES = (*(published.name for published in _PUBLISHED), "tiny")
"""The names `layout` knows."""


@cache
def layout(name: str) -> CheckpointLayout:
    """The layout of a public checkpoint, or `tiny`, which is LFM2.5-VL-1.6B shrunk.

    Raises:
        ConfigurationError: the name is none of `LAYOUT_NAMES`.
    """
    if name == "tiny":
        return shrunk(layout("LFM2.5-VL-1.6B"), name="tiny")
    for published in _PUBLISHED:
        if published.name == name.removeprefix("LiquidAI/"):
            return published
    raise ConfigurationError(f"unknown checkpoint layout {name!r}: choose one of {', '.join(LAYOUT_NAMES)}")

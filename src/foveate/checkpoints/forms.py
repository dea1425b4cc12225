"""The three forms in which LFM2-VL checkpoints were published.

    first revision   August 2025: `lfm2-vl`, `image_token_index`, `torch_dtype`, `rope_theta`; the tiling flat in
                     processor_config.json beside a SigLIP2 preprocessor_config.json that says nothing of tiles
    ported           autumn 2025: `lfm2_vl`, `image_token_id`; all image settings flat in preprocessor_config.json
    nested           LFM2.5: `rope_parameters`, `projector_use_layernorm`; the image settings under `image_processor`
                     in processor_config.json, no preprocessor_config.json

The first revision's `auto_map` entries are left out: they name Python files, and a checkpoint made here has none.
"""

from typing import Any

from foveate.checkpoints.layout import CheckpointLayout, SpecialTokens
from foveate.checkpoints.sections import PIXELS, TILING, generation, in_order

__all__ = ["first_revision", "nested", "ported"]

_TOKENS_AT_START = SpecialTokens(first_id=0, image_id=396)
_PROJECTOR = {"projector_bias": True, "projector_hidden_act": "gelu"}
_ARCHITECTURE = {"architectures": ["Lfm2VlForConditionalGeneration"]}
_PROCESSOR_CLASS = {"processor_class": "Lfm2VlProcessor"}
_IMAGE_PROCESSOR = {
    **PIXELS,
    **TILING,
    "data_format": "channels_first",
    "do_pad": True,
    "do_resize": True,
    "image_processor_type": "Lfm2VlImageProcessorFast",
    "return_row_col_info": True,
    "size": {"height": 512, "width": 512},
}


def first_revision(
    name: str,
    *,
    vision: dict[str, Any],
    text: dict[str, Any],
    vision_feature_layer: int,
    use_thumbnail: bool,
) -> CheckpointLayout:
    """The form of August 2025."""
    tiling = {**TILING, "max_num_patches": 1024, "use_image_special_tokens": True, "use_thumbnail": use_thumbnail}
    dtype = {"torch_dtype": "bfloat16"}
    config = {
        **_ARCHITECTURE,
        **_PROJECTOR,
        **tiling,
        **dtype,
        "image_token_index": _TOKENS_AT_START.image_id,
        "model_type": "lfm2-vl",
        "projector_hidden_size": 2560,
        "text_config": in_order({**text, **dtype, "rope_theta": 1000000.0}),
        "transformers_version": "4.55.0",
        "vision_config": in_order({**vision, **dtype}),
        "vision_feature_layer": vision_feature_layer,
    }
    preprocessor = {
        **PIXELS,
        **_PROCESSOR_CLASS,
        "do_convert_rgb": None,
        "do_resize": False,
        "image_processor_type": "Siglip2ImageProcessor",
        "input_data_format": "channels_last",
        "patch_size": 16,
        "return_tensors": "pt",
    }
    return CheckpointLayout(
        name=name,
        config=in_order(config),
        generation=generation(_TOKENS_AT_START, "4.55.0"),
        processor=in_order({**tiling, **_PROCESSOR_CLASS}),
        preprocessor=in_order(preprocessor),
        special_tokens=_TOKENS_AT_START,
    )


def ported(name: str, *, vision: dict[str, Any], text: dict[str, Any]) -> CheckpointLayout:
    """The form of the first checkpoints saved by transformers' own class."""
    dtype = {"dtype": "bfloat16"}
    config = {
        **_ARCHITECTURE,
        **_PROJECTOR,
        **dtype,
        "downsample_factor": 2,
        "image_token_id": _TOKENS_AT_START.image_id,
        "model_type": "lfm2_vl",
        "projector_hidden_size": 2560,
        "text_config": in_order({**text, **dtype, "rope_theta": 1000000.0}),
        "transformers_version": "4.57.0",
        "vision_config": in_order({**vision, **dtype}),
    }
    return CheckpointLayout(
        name=name,
        config=in_order(config),
        generation=generation(_TOKENS_AT_START, "4.57.0"),
        processor=None,
        preprocessor=in_order({**_IMAGE_PROCESSOR, **_PROCESSOR_CLASS}),
        special_tokens=_TOKENS_AT_START,
    )


def nested(
    name: str,
    *,
    vision: dict[str, Any],
    text: dict[str, Any],
    special_tokens: SpecialTokens = _TOKENS_AT_START,
    min_tiles: int = 2,
    resample: int = 2,
) -> CheckpointLayout:
    """The form of LFM2.5-VL. `resample` is Pillow's number: 2 bilinear, 3 bicubic."""
    dtype = {"dtype": "bfloat16"}
    rope = {"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}
    config = {
        **_ARCHITECTURE,
        **_PROJECTOR,
        **TILING,
        **dtype,
        "image_token_id": special_tokens.image_id,
        "min_tiles": min_tiles,
        "model_type": "lfm2_vl",
        "projector_hidden_size": 2048,
        "projector_use_layernorm": False,
        "text_config": in_order({**text, **dtype, **rope}),
        "transformers_version": "5.0.0.dev0",
        "use_image_special_tokens": True,
        "vision_config": in_order({**vision, **dtype}),
    }
    image_processor = {**_IMAGE_PROCESSOR, "min_tiles": min_tiles, "resample": resample}
    return CheckpointLayout(
        name=name,
        config=in_order(config),
        generation=generation(special_tokens, "5.0.0.dev0"),
        processor={"image_processor": in_order(image_processor), **_PROCESSOR_CLASS},
        preprocessor=None,
        special_tokens=special_tokens,
    )

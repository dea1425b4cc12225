"""Models with random weights of true sizes, for tests and benchmarks. Nothing here answers anything sensibly."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foveate.checkpoints import CheckpointLayout, layout, random_tensors
from foveate.checkpoints.writing import write_settings
from foveate.engine.pictures import choose_pictures
from foveate.engine.settings import EngineSettings
from foveate.images import ImageLimits
from foveate.loading import choose_device, choose_dtype, choose_encoder, parse_compilation_config
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.kernel_check import check_kernels
from foveate.models.lfm2_vl.model import WeightLoader, empty_model
from foveate.models.lfm2_vl.processing import Processor
from foveate.vlm import VLM

__all__ = ["random_vlm"]


def random_vlm(
    like: str | CheckpointLayout = "tiny",
    *,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "bfloat16",
    compilation_config: Mapping[str, Any] | str | None = None,
    image_decoder: str = "auto",
    engine: EngineSettings | None = None,
) -> VLM:
    """Build a model of a public checkpoint's layout with seeded random weights, made on the device and never written
    to disk.

    `like` is a name such as `LFM2.5-VL-1.6B` (see `foveate.checkpoints.LAYOUT_NAMES`); the rest is as in
    `foveate.load`.
    """
    chosen, place = layout(like) if isinstance(like, str) else like, choose_device(device)
    settings = parse_compilation_config(compilation_config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_settings(folder, chosen, dtype)
        config = read_model_config(folder)
        chosen_dtype = choose_dtype(dtype, place, config.dtype)
        pictures = choose_pictures(config.images, ImageLimits(), place, chosen_dtype, image_decoder)
        processor = Processor(config, folder, pictures=pictures)
    model = empty_model(config, device=place, dtype=chosen_dtype)
    loader = WeightLoader(model)
    for tensor_name, tensor in random_tensors(chosen, seed=seed, dtype=dtype, device=place):
        loader.add(tensor_name, tensor)
    loader.finish(chosen.name)
    check_kernels(model)
    return VLM(model, processor, choose_encoder(model, settings), settings=engine)

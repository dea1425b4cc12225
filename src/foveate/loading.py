"""From a folder or a hub name to a model that is ready to answer."""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download

from foveate.engine.encoder_kernels import choose_attention
from foveate.engine.encoding import EagerImageEncoder, ImageFeatureEncoder
from foveate.engine.pictures import choose_pictures
from foveate.engine.settings import EngineSettings
from foveate.errors import CheckpointError, ConfigurationError, DeviceError
from foveate.garbage import collection_put_off
from foveate.images import ImageLimits
from foveate.kernels.availability import fault
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.kernel_check import check_kernels
from foveate.models.lfm2_vl.model import Lfm2VlModel, Progress, load_model
from foveate.models.lfm2_vl.processing import Processor
from foveate.vlm import VLM

if TYPE_CHECKING:
    from foveate.graphs import EncoderGraphSettings

CompilationConfig = Mapping[str, Any] | str | None
LoadProgress = Callable[[str, int, int], None]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ENCODER_DTYPES = ("auto", "fp8")
DEMO_MODEL = Path(__file__).parent / "demo"
"""The folder of the small trained model that ships with Foveate."""
_HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    compilation_config: CompilationConfig = None,
    limits: ImageLimits | None = None,
    image_decoder: str = "auto",
    encoder_dtype: str = "auto",
    engine: EngineSettings | None = None,
    progress: LoadProgress | None = None,
) -> VLM:
    """Load an LFM2-VL checkpoint.

    Args:
        model: A folder, or a name such as `LiquidAI/LFM2.5-VL-1.6B`, which is downloaded once. By default the small
            model that ships with Foveate.
        device: `auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`.
        dtype: `auto` (the checkpoint's own on CUDA, float32 on a CPU), `float32`, `bfloat16` or `float16`.
        compilation_config: The encoder graphs' switches (`foveate.graphs.EncoderGraphSettings`), as an object or its
            JSON text, or `@` and a file with that. By default graphs are captured where CUDA is, at budgets that fit
            the model.
        limits: Bounds on the pictures it will accept.
        image_decoder: `auto` (JPEGs on the GPU where the model is and the extra `cuda` is installed), `cpu` (Pillow) or
            `gpu`.
        encoder_dtype: `auto` (that of `dtype`), or `fp8`: the vision encoder's matrix products in float8, on GPUs of
            compute capability 9.0. Not verified on released checkpoints.
        engine: How many answers run at a time, and what memory they have.
        progress: Called with what is being done, `weights`, `graphs` or `decode steps`, how many are done, and how many
            there are.

    Raises:
        CheckpointError: the folder is not a whole LFM2-VL checkpoint.
        DeviceError: the device is not there.
        ConfigurationError: a name or a switch is wrong.
        MissingExtraError: `image_decoder` is `gpu`, and its package is not installed or does not work.
    """
    chosen = choose_device(str(device))
    settings = parse_compilation_config(compilation_config)
    if encoder_dtype not in ENCODER_DTYPES:
        raise ConfigurationError(f"encoder_dtype is {encoder_dtype!r}; allowed are {' and '.join(ENCODER_DTYPES)}")
    folder = find_folder(model)
    with collection_put_off():
        config = read_model_config(folder)
        chosen_dtype = choose_dtype(dtype, chosen, config.dtype)
        pictures = choose_pictures(config.images, limits or ImageLimits(), chosen, chosen_dtype, image_decoder)
        processor = Processor(config, folder, pictures=pictures)
        loaded = load_model(folder, config, device=chosen, dtype=chosen_dtype, progress=_part_of(progress, "weights"))
        check_kernels(loaded)
        if encoder_dtype == "fp8":
            loaded.encoder.use_fp8()
        encoder = choose_encoder(loaded, settings, _part_of(progress, "graphs"))
        vlm = VLM(loaded, processor, encoder, settings=engine)
        if chosen.type == "cuda":  # Captured now, not within the first answer, and sized after all that was captured.
            vlm.start_engine(_part_of(progress, "decode steps"))
    return vlm


def _part_of(progress: LoadProgress | None, part: str) -> Progress | None:
    return partial(progress, part) if progress else None


def choose_encoder(
    model: Lfm2VlModel, settings: "EncoderGraphSettings | None", progress: Progress | None = None
) -> ImageFeatureEncoder:
    """Capture the encoder graphs of a model when `settings` or, by default, its device ask for them; else run
    eagerly. Eagerly, too, where the kernels were switched off: their twins wait for the device, which no graph can."""
    choose_attention(model)
    if fault() and model.device.type == "cuda":
        return EagerImageEncoder(model.encoder)
    if settings is None or not wants_graphs(settings, model.device):
        if settings is not None and settings.encoder_plan == "fixed":
            raise ConfigurationError(
                "encoder_plan is 'fixed', but the encoder graphs are off here; set cudagraph_mm_encoder to true"
            )
        return EagerImageEncoder(model.encoder)
    from foveate.engine.graph_encoding import capture_encoder

    return capture_encoder(model, settings, progress=progress)


def wants_graphs(settings: "EncoderGraphSettings | None", device: torch.device) -> bool:
    """Whether the encoder is to run as graphs: as `settings` say, by default where CUDA is."""
    if settings is None:
        return False
    return device.type == "cuda" if settings.cudagraph_mm_encoder is None else settings.cudagraph_mm_encoder


def parse_compilation_config(compilation_config: CompilationConfig) -> "EncoderGraphSettings | None":
    """Read the encoder graphs' switches; None where the runtime was taken out and nobody asked for it."""
    # Imported here: the eager path must work where the graph runtime has been taken out.
    try:
        from foveate.graphs import parse_settings
    except ModuleNotFoundError:
        if compilation_config is None:
            return None
        raise
    return parse_settings(compilation_config)


def choose_device(name: str) -> torch.device:
    """Return the device of a name, after checking that it is there; raises DeviceError or ConfigurationError."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", name):
        raise ConfigurationError(f"device is {name!r}; allowed are auto, cpu, cuda and cuda:N")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = device.index or 0
        if index >= count:
            raise DeviceError(
                f"device is {name!r}, but this machine has {count} CUDA devices that torch can use; try cpu"
            )
        return torch.device("cuda", index)
    return device


def choose_dtype(name: str, device: torch.device, checkpoint_dtype: str) -> torch.dtype:
    """Return the type of a name; `auto` is the checkpoint's on CUDA and float32 on a CPU."""
    if name == "auto":
        name = checkpoint_dtype if device.type == "cuda" and checkpoint_dtype in DTYPES else "float32"
    if not isinstance(name, str) or name not in DTYPES:
        raise ConfigurationError(f"dtype is {name!r}; allowed are auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def find_folder(model: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a checkpoint, downloading it when a hub name was given; by default the packaged one."""
    if model is None:
        return DEMO_MODEL
    if not isinstance(model, str | os.PathLike) or isinstance(os.fspath(model), bytes):
        raise ConfigurationError(f"the model is {model!r}; give a folder or a hub name as text")
    if not os.fspath(model):
        raise CheckpointError("the model's name is empty; give a folder or a hub name such as LiquidAI/LFM2.5-VL-1.6B")
    folder, name = Path(model), os.fspath(model)
    try:
        is_folder, is_there = folder.is_dir(), folder.exists()
    except OSError as error:
        raise CheckpointError(f"the model's name cannot be looked up: {error.strerror}") from error
    if is_folder:
        return folder
    if is_there:
        raise CheckpointError(f"{name} is a file; give the folder that holds config.json and model.safetensors")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or name.startswith((".", "/")):
        raise CheckpointError(f"there is no folder {name}, and it is not a hub name such as LiquidAI/LFM2.5-VL-1.6B")
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:  # proxies and endpoints of people's environments raise anything, ImportError included
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"there is no folder {name}, and it cannot be had from the hub: {reason}") from error

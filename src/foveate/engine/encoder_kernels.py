"""Which attention an encoder runs on its card: measured at the first start, and kept on disk beside the costs."""

import hashlib
import json
import logging
import tempfile
from pathlib import Path

import torch

from foveate.engine.encoder_key import encoder_key
from foveate.kernels.attention import take_attention
from foveate.kernels.attention_choice import WAYS, AttentionSetting, measure_attention, prefer
from foveate.kernels.availability import fault
from foveate.machine import cache_folder
from foveate.models.lfm2_vl.model import Lfm2VlModel

logger = logging.getLogger(__name__)


def choose_attention(model: Lfm2VlModel, *, refresh: bool = False) -> dict[str, float]:
    """Have the encoder of a model run the fastest attention of its card; returns microseconds by way, `{}` elsewhere.

    `refresh` has them measured again. Nothing that is wrong with the file is fatal: they are measured again.
    """
    device = torch.device(model.device)
    if device.type != "cuda" or fault():
        return {}
    key, vision = encoder_key(model), model.config.vision
    path = _path(key)
    times_us = None if refresh or path is None else _kept(path, key)
    if times_us is None:
        longest = model.config.images.longest_tile_patches
        setting = AttentionSetting(vision.num_heads, vision.head_size, model.dtype, longest)
        times_us = measure_attention(setting, device)
        if path is not None:
            _keep(path, key, times_us)
    taken = prefer(times_us)
    if taken in times_us:
        take_attention(WAYS[taken], device, model.dtype, vision.num_heads, vision.head_size)
    told = ", ".join(f"{name} {microseconds:g} µs" for name, microseconds in times_us.items())
    logger.info("attention of the vision encoder: %s (%s)", taken, told or "nothing could be measured")
    return times_us


def _path(key: dict[str, str]) -> Path | None:
    folder = cache_folder()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"encoder-attention-{digest}.json" if folder else None


def _kept(path: Path, key: dict[str, str]) -> dict[str, float] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        times_us = {name: float(microseconds) for name, microseconds in record["microseconds"].items()}
        is_usable = (
            record["key"] == key and set(times_us) <= set(WAYS) and all(0 < us < 1e9 for us in times_us.values())
        )
        return times_us if is_usable else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _keep(path: Path, key: dict[str, str], times_us: dict[str, float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and moved there: another process reads an old one or a new one, never half of one.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=path.stem) as scratch:
            part = Path(scratch) / path.name
            part.write_text(json.dumps({"key": key, "microseconds": times_us}, indent=1) + "\n", encoding="utf-8")
            part.replace(path)
    except OSError as error:
        logger.warning("%s cannot be written (%s); every start will measure attention", path, error.strerror)

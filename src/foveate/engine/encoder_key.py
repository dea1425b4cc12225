"""What the speed of an encoder depends on, in words: the key of whatever is measured and kept."""

import hashlib
from functools import lru_cache
from pathlib import Path

import torch

from foveate.machine import driver_version
from foveate.models.lfm2_vl.model import Lfm2VlModel

CODE = ("graphs", "kernels", "models")
"""The parts of Foveate that decide how long the encoder takes."""


def encoder_key(model: Lfm2VlModel) -> dict[str, str]:
    """Return all that decides how long the encoder of a model on a CUDA device takes, in words."""
    config, card = model.config, torch.cuda.get_device_properties(torch.device(model.device))
    return {
        "card": f"{card.name}, {card.major}.{card.minor}, {card.multi_processor_count} multiprocessors",
        "driver": driver_version() or "unknown",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}",
        "model": f"{config.vision} {config.projector} {config.language.hidden_size} {config.images}",
        "type": model.encoder.dtype_name,
        "code": code_version(),
    }


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return a digest of the sources that decide how long the encoder takes."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for part in CODE:
        for file in sorted((package / part).rglob("*.py")):
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

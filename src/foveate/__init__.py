"""Foveate serves LFM2-VL: pictures and questions in, answers out, the first words soon.

What stands here is imported when it is first used: importing torch takes seconds, which `foveate --help` need not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foveate.garbage import collection_put_off

if TYPE_CHECKING:
    from foveate.config import SamplingParams
    from foveate.engine.answer import Answer
    from foveate.engine.settings import EngineSettings
    from foveate.images import ImageLimits
    from foveate.loading import load
    from foveate.vlm import VLM, AnswerStream

__version__ = "0.1.0"
__all__ = ["VLM", "Answer", "AnswerStream", "EngineSettings", "ImageLimits", "SamplingParams", "__version__", "load"]

_HOMES = {
    "VLM": "foveate.vlm",
    "Answer": "foveate.engine.answer",
    "AnswerStream": "foveate.vlm",
    "EngineSettings": "foveate.engine.settings",
    "ImageLimits": "foveate.images",
    "SamplingParams": "foveate.config",
    "load": "foveate.loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        with collection_put_off():
            return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'foveate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

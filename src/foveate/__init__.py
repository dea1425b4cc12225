"""Foveate serves LFM2-VL: pictures and questions in, answers out, the first words soon."""

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.images import ImageLimits
from foveate.loading import load
from foveate.vlm import VLM, AnswerStream

__version__ = "0.1.0"
__all__ = ["VLM", "Answer", "AnswerStream", "ImageLimits", "SamplingParams", "__version__", "load"]

"""Who answers the questions: Foveate with graphs or without, or transformers, which is the reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from foveate.config import SamplingParams
from foveate.evaluation.example import Example
from foveate.vlm import VLM, question


@dataclass(frozen=True)
class Prediction:
    """One answer and the scores it began with."""

    text: str
    """The answer."""
    first_logits: Tensor
    """`[vocab_size]` float32 on the host: the scores of the first token."""


class Predictor(Protocol):
    """Answers questions greedily."""

    name: str

    def answer(self, examples: Sequence[Example], max_tokens: int) -> list[Prediction]:
        """Answer several questions."""


class FoveatePredictor:
    """Foveate, several questions in one batch."""

    def __init__(self, vlm: VLM, name: str) -> None:
        self._vlm = vlm
        self.name = name

    def answer(self, examples: Sequence[Example], max_tokens: int) -> list[Prediction]:
        """Answer several questions."""
        conversations = [[question(example.pictures, example.question)] for example in examples]
        generation = self._vlm.start(conversations, SamplingParams(max_tokens=max_tokens))
        for _ in generation:
            pass
        assert generation.first_logits is not None  # the loop above has run the prefill
        logits = generation.first_logits.cpu()
        return [Prediction(answer.text, row) for answer, row in zip(generation.answers(), logits, strict=True)]


class TransformersPredictor:
    """Hugging Face transformers on the same checkpoint and the same RGB pixels, one question at a time."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, attention: str = "sdpa") -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.name = f"transformers ({attention})"
        self._processor = AutoProcessor.from_pretrained(folder)
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
        self._model = model.to(device).eval()

    @torch.no_grad()
    def answer(self, examples: Sequence[Example], max_tokens: int) -> list[Prediction]:
        """Answer several questions."""
        return [self._answer(example, max_tokens) for example in examples]

    def _answer(self, example: Example, max_tokens: int) -> Prediction:
        images = list(example.pictures)
        messages: list[dict[str, Any]] = [question(images, example.question)]
        text = self._processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = self._processor(images=[images], text=[text], return_tensors="pt").to(self._model.device)
        options = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        made = self._model.generate(**inputs, max_new_tokens=max_tokens, **options)
        new = made.sequences[0, inputs["input_ids"].shape[1] :]
        answer = self._processor.tokenizer.decode(new, skip_special_tokens=True)
        return Prediction(answer, made.logits[0][0].float().cpu())

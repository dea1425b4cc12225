"""Prompts → answers: encode the pictures, prefill all prompts in one packed batch, then decode step by step."""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.caches import PAGE_TOKENS, CachePool
from foveate.engine.clock import StageClock
from foveate.engine.encoding import EncoderReport, ImageFeatureEncoder
from foveate.engine.sampler import Sampler
from foveate.engine.sequence import Sequence
from foveate.errors import PromptError
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor, Prompt


@dataclass(frozen=True)
class Piece:
    """Some text of one of the answers that are generated together."""

    index: int
    """Which answer."""
    text: str
    """Text that follows what was given before; may be empty."""


class Generation:
    """Answers being generated together. Iterating runs them; each gets the result it would have alone."""

    def __init__(
        self,
        model: Lfm2VlModel,
        processor: Processor,
        encoder: ImageFeatureEncoder,
        prompts: Items[Prompt],
        params: Items[SamplingParams],
        clock: StageClock,
    ) -> None:
        check_lengths(model, prompts, params)
        self._model, self._encoder, self._clock = model, encoder, clock
        self._pool = _pool(model, prompts, params)
        self.encoder_report: EncoderReport | None = None
        self.first_logits: Tensor | None = None
        self._is_started = False
        self.sequences = [
            Sequence(
                prompt,
                param,
                sampler=Sampler(param, prompt.token_ids, model.device),
                memory=self._pool.open(),
                decode=processor.decode,
                stop_token_ids=model.config.stop_token_ids,
            )
            for prompt, param in zip(prompts, params, strict=True)
        ]

    @torch.inference_mode()
    def _prefill(self) -> Tensor:
        features = self._encode_images()
        with self._clock.device("prefill"):
            prompts = [sequence.prompt.token_ids for sequence in self.sequences]
            embeddings = [self._model.embed(ids, rows) for ids, rows in zip(prompts, features, strict=True)]
            return self._run(torch.cat(embeddings), self.sequences, [len(ids) for ids in prompts])

    def _encode_images(self) -> list[Tensor | None]:
        """Encode the pictures of all prompts in one call; returns each prompt's features, or None where it has no
        picture."""
        images = [image for sequence in self.sequences for image in sequence.prompt.images]
        if not images:
            return [None] * len(self.sequences)
        with self._clock.device("encode"):
            encoded = self._encoder.encode(ImageBatch.of(images))
        self.encoder_report = encoded.report
        rest = iter(encoded.features)
        own = [[next(rest) for _ in sequence.prompt.images] for sequence in self.sequences]
        return [torch.cat(features) if features else None for features in own]

    @torch.inference_mode()
    def _decode(self, sequences: list[Sequence]) -> Tensor:
        with self._clock.device("decode"):
            embeddings = self._model.embed([sequence.token_ids[-1] for sequence in sequences], None)
            return self._run(embeddings, sequences, [1] * len(sequences))

    def _run(self, embeddings: Tensor, sequences: list[Sequence], lengths: list[int]) -> Tensor:
        batch = self._pool.append([(each.memory, new) for each, new in zip(sequences, lengths, strict=True)])
        hidden = self._model.language(embeddings, batch, self._pool.tensors)
        return self._model.language.logits(hidden[batch.last_tokens.to(hidden.device)])

    def answers(self) -> list[Answer]:
        """Return the finished answers."""
        stages_ms = self._clock.milliseconds()
        return [sequence.answer(stages_ms, self.encoder_report) for sequence in self.sequences]

    def __iter__(self) -> Iterator[Piece]:
        if self._is_started:
            raise ValueError("these answers have been generated already; start others")
        self._is_started = True
        return self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        running = self.sequences
        logits = self.first_logits = self._prefill()
        while True:
            with self._clock.host("sample"):
                tokens = [sequence.sampler.sample(row) for sequence, row in zip(running, logits, strict=True)]
            for sequence, token in zip(running, tokens, strict=True):
                yield Piece(self.sequences.index(sequence), sequence.add(token))
            running = [sequence for sequence in running if not sequence.is_finished]
            if not running:
                return
            logits = self._decode(running)


def check_lengths(model: Lfm2VlModel, prompts: Items[Prompt], params: Items[SamplingParams]) -> None:
    """Raise PromptError when a prompt and its answer would not fit the positions the checkpoint declares."""
    bound = model.config.language.max_positions
    for prompt, param in zip(prompts, params, strict=True):
        if len(prompt.token_ids) + param.max_tokens > bound:
            raise PromptError(
                f"the prompt has {len(prompt.token_ids)} tokens and max_tokens is {param.max_tokens}; together they"
                f" may be at most {bound} (max_position_embeddings): shorten the prompt or lower max_tokens"
            )


def _pool(model: Lfm2VlModel, prompts: Items[Prompt], params: Items[SamplingParams]) -> CachePool:
    totals = [len(prompt.token_ids) + param.max_tokens for prompt, param in zip(prompts, params, strict=True)]
    pages = sum(-(-total // PAGE_TOKENS) for total in totals)
    tensors = model.language.new_caches(pages=pages, page_tokens=PAGE_TOKENS, slots=len(totals))
    return CachePool(tensors, model.config.language.conv_taps)

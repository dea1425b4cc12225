"""Foveate's networks run by hand through their caches, so that the numbers before sampling can be seen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from foveate.engine.caches import CachePool
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Prompt


@torch.inference_mode()
def features_of(model: Lfm2VlModel, prompts: Sequence[Prompt]) -> list[Tensor | None]:
    """The image features of each prompt, `[image tokens, hidden_size]`, all encoded in one call."""
    images = [image for prompt in prompts for image in prompt.images]
    if not images:
        return [None] * len(prompts)
    counts = [prompt.token_ids.count(model.config.image_token_id) for prompt in prompts]
    return [part if len(part) else None for part in model.encoder.encode(ImageBatch.of(images)).split(counts)]


class Run:
    """Several prompts in one batch, prefilled and decoded as the caller says."""

    def __init__(self, model: Lfm2VlModel, prompts: Sequence[Prompt], page_tokens: int = 64) -> None:
        self.model = model
        self.prompts = list(prompts)
        longest = max(len(prompt.token_ids) for prompt in prompts) + 64
        pages = len(self.prompts) * -(-longest // page_tokens)
        caches = model.language.new_caches(pages=pages, page_tokens=page_tokens, slots=len(self.prompts))
        self.pool = CachePool(caches)
        self.memories = [self.pool.open() for _ in self.prompts]

    @torch.inference_mode()
    def prefill(self, chunk_tokens: int | None = None) -> Tensor:
        """Run the prompts in chunks of at most so many tokens; returns the last logits `[prompts, vocab_size]`."""
        rows = [
            self.model.embed(prompt.token_ids, features)
            for prompt, features in zip(self.prompts, features_of(self.model, self.prompts), strict=True)
        ]
        logits: list[Tensor] = [torch.empty(0)] * len(rows)
        waiting = dict(enumerate(rows))
        while waiting:
            chunks = {index: rest[:chunk_tokens] for index, rest in waiting.items()}
            for index, row in zip(chunks, self._run(chunks), strict=True):
                logits[index] = row
            waiting = {index: waiting[index][len(chunk) :] for index, chunk in chunks.items()}
            waiting = {index: rest for index, rest in waiting.items() if len(rest)}
        return torch.stack(logits)

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Tensor:
        """Run one more token of each prompt; returns its logits `[prompts, vocab_size]`."""
        return self._run({index: self.model.embed([token], None) for index, token in enumerate(tokens)})

    def _run(self, chunks: dict[int, Tensor]) -> Tensor:
        batch = self.pool.append([(self.memories[index], len(chunk)) for index, chunk in chunks.items()])
        hidden = self.model.language(torch.cat(list(chunks.values())), batch, self.pool.tensors)
        return self.model.language.logits(hidden[batch.last_tokens])


def relative_error(ours: Tensor, expected: Tensor) -> float:
    """The norm of the difference over the norm of what was expected."""
    return float((ours.double() - expected.double()).norm() / expected.double().norm())

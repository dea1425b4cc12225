"""Logits → the next token, for one sequence at a time.

The order is the one of transformers' generation: repetition penalty, temperature, top-k, top-p, min-p.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from foveate.config import SamplingParams
from foveate.errors import NumbersError

# Below it a quotient may overflow float32, and infinities cannot be told apart; the likeliest token has it all by then.
_LOWEST_TEMPERATURE = 1e-6


class Sampler:
    """Chooses the tokens of one answer. Each answer has its own generator, so company in a batch changes nothing."""

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], device: torch.device) -> None:
        self._params = params
        self._seen: Tensor | None = None
        if params.repetition_penalty != 1:
            self._seen = torch.tensor(sorted(set(prompt_ids)), device=device)
        self._generator = torch.Generator(device)
        if params.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(params.seed)

    def sample(self, logits: Tensor) -> int:
        """Return the next token of `logits` `[vocab_size]`, float32; raises NumbersError when they are not numbers."""
        if not math.isfinite(float(logits.max())):
            raise NumbersError(
                "the model's scores are not numbers (NaN or infinite): its weights are damaged, or its type is too"
                " small for them; try dtype float32"
            )
        if self._seen is not None:
            logits = penalised(logits, self._seen, self._params.repetition_penalty)
        if self._params.is_greedy:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial(probabilities(logits, self._params), 1, generator=self._generator))
        if self._seen is not None:
            self._seen = torch.cat([self._seen, self._seen.new_tensor([token])])
        return token


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Return a copy of `logits` `[vocab_size]` with the scores of the tokens `seen` made less likely, once each."""
    scores = logits[seen]
    return logits.index_copy(0, seen, torch.where(scores < 0, scores * penalty, scores / penalty))


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Return the distribution `[vocab_size]` that `params` asks for; at least one token always remains."""
    logits = logits / max(params.temperature, _LOWEST_TEMPERATURE)
    if 0 < params.top_k < logits.shape[0]:
        logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], -torch.inf)
    if params.top_p < 1:
        logits = _nucleus(logits, params.top_p)
    chances = logits.softmax(0)
    if params.min_p > 0:
        chances = chances.masked_fill(chances < params.min_p * chances.max(), 0)
        chances = chances / chances.sum()
    return chances


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    ascending, order = logits.sort()
    outside = ascending.softmax(0).cumsum(0) <= 1 - top_p
    outside[-1] = False
    return logits.masked_fill(torch.zeros_like(outside).scatter(0, order, outside), -torch.inf)

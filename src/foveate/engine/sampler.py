"""Logits to the next tokens, for a whole batch at once and without the host.

The order is the one of transformers' generation: repetition penalty, temperature, top-k, top-p, min-p. Presence and
frequency penalties come after the repetition penalty. Every row of a batch has settings of its own; how much of the
work a batch needs at all is its `SamplingKind`.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from foveate.config import SamplingParams
from foveate.engine.noise import exponential_noise

# Below it a quotient may overflow float32, and infinities cannot be told apart; the likeliest token has it all by then.
_LOWEST_TEMPERATURE = 1e-6


class SamplingKind(IntEnum):
    """What a batch needs, from the least to the most; a batch takes the most that one of its rows needs."""

    GREEDY = 0
    """The likeliest token, and nothing else."""
    DRAWN = 1
    """Penalties, temperature and min-p as well."""
    FILTERED = 2
    """Top-k and top-p as well, for which the vocabulary is sorted."""


def sampling_kind(params: SamplingParams) -> SamplingKind:
    """Return what one request needs."""
    if not params.is_greedy and (params.top_k or params.top_p < 1):
        return SamplingKind.FILTERED
    return SamplingKind.DRAWN if has_penalties(params) or not params.is_greedy else SamplingKind.GREEDY


def has_penalties(params: SamplingParams) -> bool:
    """Whether earlier tokens matter."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


@dataclass(frozen=True)
class SamplingRows:
    """The settings of each row of a batch, on the device; numbers are `[rows, 1]`."""

    temperature: Tensor
    top_p: Tensor
    min_p: Tensor
    repetition_penalty: Tensor
    presence_penalty: Tensor
    frequency_penalty: Tensor
    top_k: Tensor
    """0 keeps all."""
    seed: Tensor
    drawn: Tensor
    """Tokens drawn before, so that each token has random numbers of its own."""
    in_prompt: Tensor
    """`[rows, vocab_size]` bool: tokens of the prompt."""
    counts: Tensor
    """`[rows, vocab_size]`: how often the answer holds each token."""


def likeliest(logits: Tensor) -> Tensor:
    """Return the likeliest token of each row of `logits` `[rows, vocab_size]`; -1 where they are not numbers."""
    return torch.where(logits.amax(1).isfinite(), logits.argmax(1), -1)


def choose(logits: Tensor, rows: SamplingRows, *, is_filtered: bool = True) -> Tensor:
    """Return the next token of each row of `logits` `[rows, vocab_size]`, float32; -1 where they are not numbers.

    Without `is_filtered`, top-k and top-p are left out of account.
    """
    is_number = logits.amax(1).isfinite()
    logits = penalised(logits, rows)
    chances = probabilities(logits, rows, is_filtered=is_filtered)
    noise = exponential_noise(rows.seed, rows.drawn, logits.shape[1])
    # The largest of chances over exponential noise is a draw from the chances.
    tokens = torch.where(rows.temperature[:, 0] == 0, logits.argmax(1), (chances / noise).argmax(1))
    return torch.where(is_number, tokens, -1)


def penalised(logits: Tensor, rows: SamplingRows) -> Tensor:
    """Return a copy of `logits` with the tokens seen before made less likely."""
    in_answer = rows.counts > 0
    punished = torch.where(logits < 0, logits * rows.repetition_penalty, logits / rows.repetition_penalty)
    logits = torch.where(rows.in_prompt | in_answer, punished, logits)
    return logits - rows.presence_penalty * in_answer - rows.frequency_penalty * rows.counts


def probabilities(logits: Tensor, rows: SamplingRows, *, is_filtered: bool = True) -> Tensor:
    """Return the distributions that the settings ask for; at least one token always remains."""
    logits = logits / rows.temperature.clamp(min=_LOWEST_TEMPERATURE)
    if is_filtered:
        logits = _filtered(logits, rows)
    chances = logits.softmax(1)
    return logits.masked_fill(chances < rows.min_p * chances.amax(1, keepdim=True), -torch.inf).softmax(1)


def _filtered(logits: Tensor, rows: SamplingRows) -> Tensor:
    """Take out what top-k and top-p leave out; both look at the same sorted row."""
    ascending, order = logits.sort(1)
    size = logits.shape[1]
    kept = torch.where(rows.top_k > 0, rows.top_k, size).clamp(max=size)
    ascending = ascending.masked_fill(ascending < ascending.gather(1, size - kept), -torch.inf)
    outside = (ascending.softmax(1).cumsum(1) <= 1 - rows.top_p) & (rows.top_p < 1)
    outside |= ascending == -torch.inf
    outside[:, -1] = False
    return logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -torch.inf)

"""The sampler's settings of a batch, as the tests write them."""

from collections.abc import Sequence

import torch
from torch import Tensor

import foveate
from foveate.engine.sampler import SamplingRows, choose


def sampling_rows(
    params: Sequence[foveate.SamplingParams],
    vocab_size: int,
    *,
    prompts: Sequence[Sequence[int]] | None = None,
    answers: Sequence[Sequence[int]] | None = None,
) -> SamplingRows:
    """One row for each of `params`; what the prompts and the answers so far hold is none by default."""

    def column(name: str) -> Tensor:
        return torch.tensor([[float(getattr(each, name))] for each in params])

    in_prompt = torch.zeros(len(params), vocab_size, dtype=torch.bool)
    counts = torch.zeros(len(params), vocab_size, dtype=torch.int32)
    for row, tokens in enumerate(prompts or []):
        in_prompt[row, list(tokens)] = True
    for row, tokens in enumerate(answers or []):
        for token in tokens:
            counts[row, token] += 1
    return SamplingRows(
        temperature=column("temperature"),
        top_p=column("top_p"),
        min_p=column("min_p"),
        repetition_penalty=column("repetition_penalty"),
        presence_penalty=column("presence_penalty"),
        frequency_penalty=column("frequency_penalty"),
        top_k=torch.tensor([[min(each.top_k, vocab_size)] for each in params]),
        seed=torch.tensor([[each.seed or 0] for each in params]),
        drawn=torch.tensor([[len(tokens)] for tokens in answers or [[]] * len(params)]),
        in_prompt=in_prompt,
        counts=counts,
    )


def draw(params: foveate.SamplingParams, logits: Tensor, prompt: Sequence[int] = ()) -> list[int]:
    """The tokens of one answer whose steps have these `logits` `[steps, vocab_size]`."""
    tokens: list[int] = []
    for row in logits:
        settings = sampling_rows([params], len(row), prompts=[prompt], answers=[tokens])
        tokens.append(int(choose(row[None], settings)))
    return tokens

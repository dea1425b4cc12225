"""At start, the Triton kernels against their twins, through the whole model: a tile, prompts, and a decode step.

A compiler may turn a right kernel into wrong machine code, for one card and one version of it. Whoever meets that gets
the twins, slower and right, and an error in the log.
"""

import logging
from itertools import accumulate

import torch
from torch import Tensor

from foveate.kernels.availability import runs_triton, switch_off, twins_only
from foveate.models.caches import DecodeBatch, SequencePlaces, sequence_batch
from foveate.models.lfm2_vl.model import Lfm2VlModel

logger = logging.getLogger(__name__)

MOST_APART = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}
"""The largest relative norm of a difference that rounding may make; what a wrong kernel gives is off by about 1, or not
a number."""
TILE = (16, 16)
PAGE_TOKENS = 64
CONTEXTS = (1, 70, 150)
"""Tokens of the contexts, the new one included: within a page, and over several."""
PROMPTS, CACHED = (40, 1, 70), (0, 69, 80)
"""New tokens of prompts, and those before them: from the beginning, a single one, and over several pages."""


@torch.inference_mode()
def check_kernels(model: Lfm2VlModel) -> None:
    """Compare, and switch the kernels off in this process if they fail or are too far from their twins."""
    if not runs_triton(model.language.embedding.weight.detach()):
        return
    try:
        found = run_both_parts(model)
        with twins_only():
            expected = run_both_parts(model)
        fault = _worst(found, expected, MOST_APART[model.dtype])
    except Exception as error:  # a compiler raises what it likes; what the model itself raises comes again later
        fault = f"{type(error).__name__}: {error!s:.200}"
    if fault:
        switch_off(fault)
        logger.error("the Triton kernels are wrong on this machine, plain torch runs in their stead: %s", fault)


def run_both_parts(model: Lfm2VlModel) -> dict[str, Tensor]:
    """Return the image features of a tile of noise, and the hidden rows of prompts and of a decode step over caches of
    noise."""
    generator = torch.Generator(model.device).manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=model.device).to(model.dtype)

    patches = noise(TILE[0] * TILE[1], model.config.vision.patch_width)
    features = model.encoder(patches, torch.tensor([TILE], device=model.device))
    rows = len(CONTEXTS)
    pages = -(-max(CONTEXTS) // PAGE_TOKENS)
    caches = model.language.new_caches(pages=rows * pages, page_tokens=PAGE_TOKENS, slots=rows)
    for cache in (caches.keys, caches.values, caches.states):
        cache.copy_(noise(*cache.shape))
    tables = torch.arange(rows * pages, device=model.device, dtype=torch.int32).view(rows, pages)
    lengths = torch.tensor(CONTEXTS, device=model.device)
    slots = torch.arange(rows, device=model.device)
    bounds = torch.tensor([0, *accumulate(PROMPTS)], device=model.device, dtype=torch.int32)
    places = SequencePlaces(bounds, torch.tensor(CACHED, device=model.device, dtype=torch.int32), tables, slots)
    prompts = sequence_batch(places, sum(PROMPTS), PAGE_TOKENS, dummy_page=0)
    answered = model.language(noise(sum(PROMPTS), model.config.language.hidden_size), prompts, caches)
    batch = DecodeBatch(
        positions=lengths - 1,
        write_rows=tables[:, 0].long() * PAGE_TOKENS + lengths - 1,
        page_tables=tables,
        lengths=lengths.int(),
        slots=slots,
    )
    hidden = model.language(noise(rows, model.config.language.hidden_size), batch, caches)
    return {
        "the encoder": features,
        "a prefill": answered,
        "a decode step": hidden,
        "the keys of both": caches.keys,
        "the states of both": caches.states,
    }


def _worst(found: dict[str, Tensor], expected: dict[str, Tensor], bound: float) -> str | None:
    """Return what is too far apart, in words; None where nothing is."""
    for name, right in expected.items():
        apart = float((found[name].float() - right.float()).norm() / right.float().norm())
        if not apart <= bound:  # also where it is not a number
            return f"{name} is {apart:.3g} apart, at most {bound:g} is rounding"
    return None

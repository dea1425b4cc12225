"""Seeded random values for a checkpoint's tensors."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from foveate.checkpoints.inventory import TensorNames, TensorSpec, inventory
from foveate.checkpoints.layout import CheckpointLayout
from foveate.checkpoints.tokenizer import spoken_ids
from foveate.errors import ConfigurationError

__all__ = ["DTYPES", "random_tensors"]

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
"""The element types a checkpoint can be made in, by the names that configuration files use."""

_CHUNK_ELEMENTS = 1 << 24
_EMBEDDING_DEVIATION = 0.02


def random_tensors(
    layout: CheckpointLayout,
    *,
    seed: int = 0,
    dtype: str = "bfloat16",
    device: str | torch.device = "cpu",
    names: TensorNames = "official",
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of the checkpoint, one by one, filled on `device`.

    A tensor's values depend on the seed, its published name, its shape and the kind of device, and on nothing else: not
    on order, sharding or `names`. Types differ only by rounding. One tensor and 64 MB of scratch are alive at a time.

    Raises:
        ConfigurationError: unknown `dtype` or `names`; at once, not with the first tensor.
    """
    if dtype not in DTYPES:
        raise ConfigurationError(f"unknown dtype {dtype!r} for a checkpoint: choose one of {', '.join(DTYPES)}")
    named = [(spec.named(names), spec) for spec in inventory(layout)]
    target = torch.device(device)
    return ((name, _random_tensor(spec, layout, seed=seed, dtype=DTYPES[dtype], device=target)) for name, spec in named)


def _random_tensor(
    spec: TensorSpec, layout: CheckpointLayout, *, seed: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The values of one tensor, of shape `spec.shape`."""
    digest = hashlib.sha256(f"{seed}\n{spec.name}".encode()).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "little"))
    mean, deviation = _mean_and_deviation(spec)
    values = torch.empty(spec.elements, dtype=dtype, device=device)
    for start in range(0, spec.elements, _CHUNK_ELEMENTS):
        chunk = values[start : start + _CHUNK_ELEMENTS]
        # Drawn in float32 whatever the type, so that types differ by rounding only.
        chunk.copy_(torch.randn(chunk.shape, generator=generator, device=device).mul_(deviation).add_(mean))
    values = values.view(spec.shape)
    if spec.name.endswith("embed_tokens.weight"):
        _quieten(values, layout)
    return values


def _mean_and_deviation(spec: TensorSpec) -> tuple[float, float]:
    """Scales that keep activations near one, and the answer dependent on the picture and on the question.

    Attention over many tokens averages them away unless some weigh more than others: the norms of queries and keys are
    1.7 for that, and what attention brings back is amplified. The last norm gives the logits a deviation of about 2.5.
    """
    name, inputs = spec.name, spec.shape[-1]
    if name.endswith(("q_layernorm.weight", "k_layernorm.weight")):
        return 1.7, 0.1
    if name.endswith("embedding_norm.weight"):
        return 2.5 / (_EMBEDDING_DEVIATION * inputs**0.5), 0.1
    if "norm" in name and name.endswith(".weight"):
        return 1.0, 0.1
    if name.endswith(".bias"):
        return 0.0, 0.05
    if name.endswith(("position_embedding.weight", "conv.conv.weight")):
        return 0.0, 0.5
    if name.endswith("embed_tokens.weight"):
        return 0.0, _EMBEDDING_DEVIATION
    brought_back = "language_model" in name and name.endswith(("v_proj.weight", "self_attn.out_proj.weight"))
    return 0.0, (1.5 if brought_back else 1.0) * inputs**-0.5


def _quieten(embeddings: Tensor, layout: CheckpointLayout) -> None:
    """Shrink the rows of all tokens but words and the end of the answer, so that the tied head never prefers them."""
    scale = torch.full((layout.vocabulary_tokens, 1), 0.25, dtype=embeddings.dtype, device=embeddings.device)
    scale[[*spoken_ids(layout), layout.special_tokens.end_id]] = 1.0
    embeddings *= scale

"""Activations by the names that configurations give them."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]

_USUAL: dict[str, Activation] = {
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}
"""What checkpoints have. transformers' own table has more, and takes most of a second to import."""


def activation(name: str) -> Activation:
    """Return the activation that transformers calls `name`; KeyError if it knows none."""
    if name in _USUAL:
        return _USUAL[name]
    from transformers.activations import ACT2FN

    found: nn.Module = ACT2FN[name]
    return found

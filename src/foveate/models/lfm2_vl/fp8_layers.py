"""The vision tower's layers with their matrix products in float8: an option, off by default.

Rows get a scale each as they leave a norm, the attention or the GELU; weights one for each output channel. Attention
and the hidden rows stay in the model's own type. What float8 does to the answers of the released checkpoints was not
measured.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foveate.errors import ConfigurationError, DeviceError
from foveate.kernels.attention import attention
from foveate.kernels.fp8 import Fp8Rows, fp8_linear, gelu_fp8, layer_norm_fp8, quantise, quantise_reference

if TYPE_CHECKING:
    from foveate.models.lfm2_vl.vision import VisionLayer

logger = logging.getLogger(__name__)

SMALLEST_CAPABILITY = (9, 0)
"""Of the CUDA device: products with a scale for each row were made for Hopper."""

NAMES = ("qkv", "out", "fc1", "fc2")
"""The linear layers that run in float8."""


@dataclass(frozen=True)
class Fp8Layer:
    """One layer's weights in float8, beside those they were made of."""

    layer: "VisionLayer"
    weights: dict[str, Fp8Rows]
    """By the names in `NAMES`: `[outputs, inputs]`, a scale for each output."""

    def __call__(self, hidden: Tensor, branch: Tensor | None, offsets: Tensor, bounds: Tensor, longest: int) -> Tensor:
        """As `VisionLayer.forward`, but a branch is handed on and added by the next norm.

        `branch` `[rows, width]` is that of the layer before, None for the first. `hidden` is written in place.
        """
        layer, norm = self.layer, self.layer.attention_norm
        rows = layer_norm_fp8(hidden, branch, offsets[0], norm.weight, norm.bias, norm.eps)
        qkv = self._product("qkv", rows, hidden.dtype, layer.qkv.bias)
        query, key, value = qkv.unflatten(-1, (3, layer.num_heads, layer.head_size)).unbind(1)
        mixed = self._product("out", quantise(attention(query, key, value, bounds, longest)), hidden.dtype)
        norm = layer.mlp_norm
        rows = layer_norm_fp8(hidden, mixed, offsets[1], norm.weight, norm.bias, norm.eps)
        inner = gelu_fp8(self._product("fc1", rows, hidden.dtype, layer.fc1.bias))
        return self._product("fc2", inner, hidden.dtype)

    @property
    def device(self) -> torch.device:
        """Where the float8 weights lie."""
        return self.weights["qkv"].values.device

    def refresh(self) -> None:
        """Make the float8 weights anew, where they lie."""
        for name, weight in self.weights.items():
            weight.copy_(quantise_reference(self.layer.get_parameter(f"{name}.weight")))

    def _product(self, name: str, rows: Fp8Rows, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
        return fp8_linear(rows, self.weights[name], bias, dtype)


def fp8_layers(layers: Sequence["VisionLayer"]) -> list[Fp8Layer]:
    """Make float8 weights of these layers' weights, which stay as they are.

    Raises DeviceError where the device has no such products, ConfigurationError where their type, their widths or their
    activation have none.
    """
    _check(layers[0])
    made = [
        Fp8Layer(layer, {name: quantise_reference(layer.get_parameter(f"{name}.weight")) for name in NAMES})
        for layer in layers
    ]
    logger.warning(
        "the vision encoder multiplies in float8 (e4m3): not verified on released checkpoints, answers may change"
    )
    return made


def run_fp8_layers(
    layers: Sequence[Fp8Layer], hidden: Tensor, offsets: Sequence[Tensor], bounds: Tensor, longest: int
) -> None:
    """Run all layers in place on `hidden` `[rows, width]`; see `VisionLayer.forward` for the rest."""
    branch = None
    for layer, own in zip(layers, offsets, strict=True):
        branch = layer(hidden, branch, own, bounds, longest)
    if branch is not None:
        hidden.add_(branch)


def _check(layer: "VisionLayer") -> None:
    weight = layer.fc1.weight
    if layer.activation is not None:
        raise ConfigurationError(
            "encoder_dtype is 'fp8', which has the activation gelu_pytorch_tanh alone; this checkpoint has another: "
            "leave encoder_dtype at 'auto'"
        )
    if weight.device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(weight.device)
    if capability < SMALLEST_CAPABILITY:
        raise DeviceError(
            f"encoder_dtype is 'fp8', which takes compute capability {'.'.join(map(str, SMALLEST_CAPABILITY))}; this "
            f"device has {'.'.join(map(str, capability))}: leave encoder_dtype at 'auto'"
        )
    if weight.dtype != torch.bfloat16:
        raise ConfigurationError(
            f"encoder_dtype is 'fp8', whose products give bfloat16; the model is {weight.dtype}: load it with dtype "
            "'bfloat16'"
        )
    if any(size % 16 for size in weight.shape):
        raise ConfigurationError(
            f"encoder_dtype is 'fp8', which takes widths in multiples of 16; this encoder has {list(weight.shape)}: "
            "leave encoder_dtype at 'auto'"
        )

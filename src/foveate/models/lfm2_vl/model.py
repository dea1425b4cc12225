"""A whole LFM2-VL model: image encoder, language model, tokenizer and settings, built from a checkpoint folder."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import CheckpointError
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.language import LanguageModel
from foveate.models.lfm2_vl.vision import ImageEncoder
from foveate.models.lfm2_vl.weights import WeightTarget, canonical_name, is_expected_surplus, weight_targets
from foveate.models.safetensors_files import read_tensors, safetensors_files, tensor_shapes
from foveate.models.transfer import to_device

Progress = Callable[[int, int], None]
"""Called with the number of tensors loaded so far and in all."""


class Lfm2VlModel(nn.Module):
    """The two networks. Parameters have no gradient: this is a model to run."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ImageEncoder(config)
        self.language = LanguageModel(config.language)
        self.requires_grad_(False)
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.language.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.language.embedding.weight.dtype

    def embed(self, token_ids: Sequence[int] | Tensor, features: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return `[tokens, hidden_size]`: token embeddings, with image features in place of the placeholders.

        `token_ids` are on the host. `features` is `[placeholders, hidden_size]` in prompt order, or None where there
        are no pictures. `out` is written to, if given.
        """
        ids = torch.as_tensor(token_ids)
        places = (ids == self.config.image_token_id).nonzero().flatten() if features is not None else ids[:0]
        sent, rows = to_device(torch.cat((ids, places)), self.device).split((len(ids), len(places)))
        embeddings = torch.index_select(self.language.embedding.weight, 0, sent, out=out)
        if features is not None:
            embeddings.index_copy_(0, rows, features.to(embeddings.dtype))
        return embeddings


def load_model(
    folder: Path,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> Lfm2VlModel:
    """Build the model of a checkpoint folder, whose configuration was read, on `device` in `dtype`.

    Weights go from the file to the device one tensor at a time. Raises CheckpointError on anything missing, unused,
    damaged or of the wrong shape, and names it.
    """
    files = safetensors_files(folder)
    shapes = tensor_shapes(files)
    check_shapes(config, shapes, folder)  # before memory is taken for sizes that the file does not bear out
    model = empty_model(config, device=device, dtype=dtype)
    loader = WeightLoader(model)
    for file in files:
        for name, tensor in read_tensors(file, device):
            loader.add(name, tensor)
            if progress:
                progress(loader.num_seen, len(shapes))
    loader.finish(folder)
    return model


def check_shapes(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], source: Any) -> None:
    """Raise CheckpointError unless tensors of these names and shapes make up the model of `config`."""
    waiting, unused = weight_targets(config), []
    for name, shape in shapes.items():
        canonical = canonical_name(name)
        target = waiting.pop(canonical, None)
        if target is not None:
            _check_shape(name, shape, target)
        elif not is_expected_surplus(canonical, config):
            unused.append(name)
    _check_complete(list(waiting), unused, source)


def empty_model(config: ModelConfig, *, device: torch.device, dtype: torch.dtype) -> Lfm2VlModel:
    """Build a model with unset weights, without ever holding them elsewhere."""
    with torch.device("meta"):
        model = Lfm2VlModel(config)
    return model.to(dtype).to_empty(device=device)


class WeightLoader:
    """Copies checkpoint tensors into a model, and knows which came, which did not and which nobody wanted."""

    def __init__(self, model: Lfm2VlModel) -> None:
        self._config = model.config
        self._parameters: dict[str, Tensor] = dict(model.named_parameters())
        self._waiting = weight_targets(model.config)
        self._unused: list[str] = []
        self.num_seen = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Copy one tensor to where it belongs."""
        self.num_seen += 1
        canonical = canonical_name(name)
        target = self._waiting.pop(canonical, None)
        if target is not None:
            self._copy(name, tensor, target)
        elif not is_expected_surplus(canonical, self._config):
            self._unused.append(name)

    def finish(self, source: Any) -> None:
        """Raise CheckpointError unless every parameter was filled and every tensor was used."""
        _check_complete(list(self._waiting), self._unused, source)

    def _copy(self, name: str, tensor: Tensor, target: WeightTarget) -> None:
        _check_shape(name, tuple(tensor.shape), target)
        if not tensor.is_floating_point():
            raise CheckpointError(f"{name} is of type {tensor.dtype}; Foveate reads floating-point weights")
        rows = self._parameters[target.parameter].narrow(0, target.first_row, target.num_rows)
        rows.copy_(tensor.view(rows.shape))


def _check_shape(name: str, shape: tuple[int, ...], target: WeightTarget) -> None:
    if shape != target.shape:
        raise CheckpointError(f"{name} has the shape {list(shape)}; the config.json asks for {list(target.shape)}")


def _check_complete(missing: list[str], unused: list[str], source: Any) -> None:
    faults = []
    if missing:
        faults.append(f"{len(missing)} tensors are missing: {_some(missing)}")
    if unused:
        faults.append(f"{len(unused)} tensors have no place in this model: {_some(unused)}")
    if faults:
        raise CheckpointError(f"{source} does not match its config.json: {'; '.join(faults)}")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"

"""A training run: weights, averages and optimizers, saved and restored as a whole, and one step of learning.

On CUDA a step (forward, backward, clipping, both optimizers) is captured once and replayed: the model is so small that
launching its kernels one by one takes three times as long as running them.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from glyphs import CLASSES, SLOTS
from muon import Muon
from network import Losses, PackedExamples, losses_of

from foveate.models.lfm2_vl.model import Lfm2VlModel

MATRIX_RATE, OTHER_RATE = 0.02, 2e-3
AVERAGE_DECAY = 0.999
GLYPH_WEIGHT = 1.0
"""What naming the characters counts beside the answers."""
SEEDS_PER_START = 100_000_000
"""Examples that one start may draw: no example comes twice, however often a run is taken up again."""


class Run:
    """The state of a training run. Muon moves the matrices inside layers, AdamW everything else."""

    def __init__(self, path: Path, model: Lfm2VlModel, device: torch.device, *, seed: int) -> None:
        self._path, self._seed, self._device = path, seed, device
        self.model = model.to(device)
        self._head = torch.nn.Linear(model.config.language.hidden_size, SLOTS * CLASSES, device=device)
        inner, other = [], list(self._head.parameters())
        for name, parameter in model.named_parameters():
            is_matrix = parameter.ndim == 2 and ".layers." in name and ".mixer.weight" not in name
            (inner if is_matrix else other).append(parameter)
        self._trained = [*inner, *other]
        self._share = torch.ones((), device=device)
        self._muon = Muon(inner, MATRIX_RATE)
        self._adam = torch.optim.AdamW(
            other, lr=OTHER_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True, capturable=device.type == "cuda"
        )
        self.average = {name: value.clone() for name, value in model.state_dict().items()}
        self.step, self._starts = 0, 0
        self._graph: CapturedStep | None = None
        if path.exists():
            self._restore(torch.load(path, map_location=device, weights_only=True))
        self._rate = torch.tensor(OTHER_RATE, device=device)
        for group in self._adam.param_groups:
            group["lr"] = self._rate  # after restoring, which would put another tensor there

    def next_seed(self) -> int:
        """Return the first seed of this start."""
        return self._seed * 1_000_000_000_007 + self._starts * SEEDS_PER_START

    def learn(self, batch: PackedExamples, share: float) -> Losses:
        """Take one step down the losses of a batch at `share` of the full rates."""
        self._share.fill_(share)
        self._rate.fill_(share * OTHER_RATE)
        if self._device.type != "cuda":
            losses = self._step(batch)
        else:
            self._graph = self._graph or CapturedStep(self._step, batch)
            losses = self._graph.replay(batch)
        self.step += 1
        self._remember()
        return losses

    def _step(self, batch: PackedExamples) -> Losses:
        for parameter in self._trained:
            parameter.grad = None
        with torch.autocast(self._device.type, torch.bfloat16):
            losses = losses_of(self.model, self._head, batch)
        (losses.answers + GLYPH_WEIGHT * losses.glyphs).backward()
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._muon.step(self._share)
        self._adam.step()
        return losses.detached()

    def _remember(self) -> None:
        """Move the averaged weights, which are the ones that are exported."""
        decay = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        current = self.model.state_dict()
        torch._foreach_lerp_(list(self.average.values()), [current[name] for name in self.average], 1 - decay)

    def save(self) -> None:
        """Write the state; a cut-off run leaves the last whole one."""
        state = {
            "model": self.model.state_dict(),
            "head": self._head.state_dict(),
            "average": self.average,
            "momenta": self._muon.momenta,
            "adam": self._adam.state_dict(),
            "step": self.step,
            "starts": self._starts + 1,
        }
        partial = self._path.with_suffix(".part")
        torch.save(state, partial)
        partial.rename(self._path)

    def _restore(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self._head.load_state_dict(state["head"])
        self.average = state["average"]
        torch._foreach_copy_(self._muon.momenta, state["momenta"])
        self._adam.load_state_dict(state["adam"])
        self.step, self._starts = state["step"], state["starts"]


class CapturedStep:
    """One step as a CUDA graph over batches of one size."""

    WARM_UPS = 3
    """Steps before the capture, on its first batch: they make the optimizers' states and choose the kernels."""

    def __init__(self, step: Callable[[PackedExamples], Losses], batch: PackedExamples) -> None:
        self._batch = batch.copy()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UPS):
                step(self._batch)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads pin memory meanwhile, which the strict mode takes for a fault.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._losses = step(self._batch)

    def replay(self, batch: PackedExamples) -> Losses:
        """Take one step on a batch. The losses are overwritten by the next."""
        self._batch.copy_(batch)
        self._graph.replay()
        return self._losses

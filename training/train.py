"""Train the demo model. One seed, one GPU, in runs of a few minutes that go on from the last checkpoint.

    python training/train.py WORK_FOLDER --minutes 9 --until-step 30000

WORK_FOLDER keeps `state.pt` (weights, averaged weights, optimizer, step) and `log.jsonl`. The learning rate warms up,
stays, and falls to zero over the last fifth of `--until-step`. `training/export.py` turns the averaged weights into
the packaged checkpoint.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from glyphs import CLASSES, SLOTS
from layout import demo_layout, demo_tokenizer_json
from network import Losses, losses_of
from stream import ExampleStream
from torch import Tensor
from torch.utils.data import DataLoader

from foveate.checkpoints.writing import write_settings
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor

MIXTURE = {
    "read_lines": 24,
    "read_page": 6,
    "read_form": 10,
    "transcription": 8,
    "printed_text": 20,
    "shapes": 8,
    "counting": 6,
    "relations": 8,
    "digits": 5,
    "pairs": 6,
    "unknown": 4,
    "describe": 4,
}
PATCH_ROWS = 98_304
MATRIX_RATE, OTHER_RATE = 0.02, 2e-3
WARM_UP_STEPS, DECAY_SHARE = 200, 0.2
AVERAGE_DECAY = 0.999
GLYPH_WEIGHT = 1.0
"""What naming the characters counts beside the answers."""
COUNTED = ("answers", "glyphs", "answers_right", "glyphs_right")


def build(folder: Path, seed: int) -> tuple[Lfm2VlModel, Processor]:
    """Return a model with fresh weights in float32 and its processor."""
    write_settings_of_demo(folder)
    config = read_model_config(folder)
    model = Lfm2VlModel(config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        initialise(name, parameter, generator)
    return model.requires_grad_(True).train(), Processor(config, folder)


def initialise(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    """Set a fresh parameter: what ends a residual branch starts at zero, norms at one, matrices at 1 / sqrt(inputs)."""
    kind, owner = name.rsplit(".", 1)[-1], name.rsplit(".", 2)[-2]
    with torch.no_grad():
        if kind == "bias" or owner in ("out", "fc2", "down"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1.0)
        elif owner in ("embedding", "position"):
            parameter.normal_(0, 0.02 if owner == "embedding" else 0.2, generator=generator)
        else:
            parameter.normal_(0, parameter.shape[1] ** -0.5, generator=generator)


def write_settings_of_demo(folder: Path) -> None:
    """Write every file of the demo checkpoint but its tensors."""
    write_settings(folder, demo_layout(), "bfloat16", tokenizer=demo_tokenizer_json())


def optimizers(model: Lfm2VlModel, head: torch.nn.Linear) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices inside layers, AdamW for everything else."""
    inner, other = [], []
    for name, parameter in model.named_parameters():
        (inner if parameter.ndim == 2 and ".layers." in name and ".mixer.weight" not in name else other).append(
            parameter
        )
    other += head.parameters()
    muon = torch.optim.Muon(inner, lr=MATRIX_RATE, momentum=0.95, weight_decay=0.02)
    return [muon, torch.optim.AdamW(other, lr=OTHER_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]


def rate_at(step: int, until_step: int) -> float:
    """Return the share of the full learning rate at a step."""
    decay_from = until_step * (1 - DECAY_SHARE)
    falling = 1.0 if step < decay_from else max(0.0, (until_step - step) / (until_step - decay_from))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * falling


class Run:
    """The state of a training run, saved and restored as a whole."""

    def __init__(self, work: Path, seed: int, device: torch.device) -> None:
        self._path = work / "state.pt"
        with tempfile.TemporaryDirectory() as folder:
            self.model, self.processor = build(Path(folder), seed)
        self.model.to(device)
        self.head = torch.nn.Linear(self.model.config.language.hidden_size, SLOTS * CLASSES, device=device)
        self.optimizers = optimizers(self.model, self.head)
        self.base_rates = [group["lr"] for optimizer in self.optimizers for group in optimizer.param_groups]
        self.average: dict[str, Tensor] = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.step = 0
        self.next_seed = seed * 1_000_000_007
        if self._path.exists():
            self._restore(torch.load(self._path, map_location=device, weights_only=True))

    def _restore(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        self.average = state["average"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.next_seed = state["step"], state["next_seed"]

    def save(self) -> None:
        """Write the state; a cut-off run leaves the last whole one."""
        state = {
            "model": self.model.state_dict(),
            "head": self.head.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "next_seed": self.next_seed,
        }
        partial = self._path.with_suffix(".part")
        torch.save(state, partial)
        partial.rename(self._path)

    def learn(self, loss: Tensor, until_step: int) -> None:
        """Take one step down `loss`."""
        share = rate_at(self.step, until_step)
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for group, base in zip(groups, self.base_rates, strict=True):
            group["lr"] = base * share
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        decay = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        names = list(self.average)
        current = self.model.state_dict()
        torch._foreach_lerp_([self.average[name] for name in names], [current[name] for name in names], 1 - decay)


def train(arguments: argparse.Namespace) -> None:
    """Train until the time or the steps are used up."""
    end = time.monotonic() + arguments.minutes * 60
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    arguments.work.mkdir(parents=True, exist_ok=True)
    reserve_memory(device)
    run = Run(arguments.work, arguments.seed, device)
    stream = ExampleStream(run.processor, MIXTURE, patch_rows=arguments.patch_rows, start=run.next_seed)
    # Spawned, not forked: the parent has threads of its own by now.
    batches = DataLoader(
        stream,
        batch_size=None,
        num_workers=arguments.workers,
        prefetch_factor=3 if arguments.workers else None,
        pin_memory=device.type == "cuda",
        multiprocessing_context="spawn" if arguments.workers else None,
    )
    feed, meter = iter(batches), Meter(arguments.work / "log.jsonl", arguments.log_every, device)
    while run.step < arguments.until_step and time.monotonic() < end:
        with meter.waiting():
            batch = next(feed).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            losses = losses_of(run.model, run.head, batch)
        run.learn(losses.answers + GLYPH_WEIGHT * losses.glyphs, arguments.until_step)
        meter.count(run.step, losses)
        run.next_seed += len(batch.bounds) * 2  # beyond what the workers have drawn: no example comes twice
    run.save()
    del feed, batches


def reserve_memory(device: torch.device) -> None:
    """Take half of the card's free memory in one piece for torch's allocator to cut up.

    Every batch has other shapes, so memory would otherwise be asked of the driver again and again for the first steps.
    """
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        torch.empty(free_bytes // 2, dtype=torch.uint8, device=device)  # freed at once: the allocator keeps it


class Meter:
    """Writes a line now and then: means since the last one, steps a second, and the share of time spent waiting for
    data."""

    EARLY_STEPS = (1, 2, 5, 10, 20)
    """Where the first lines come: what is slow only at the start shows here."""

    def __init__(self, path: Path, every: int, device: torch.device) -> None:
        self._path, self._every = path, every
        self._totals = torch.zeros(len(COUNTED), device=device)
        self._steps, self._waited_s, self._since = 0, 0.0, time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting."""
        asked = time.monotonic()
        yield
        self._waited_s += time.monotonic() - asked

    def count(self, step: int, losses: Losses) -> None:
        """Add one step, and write a line when it is due."""
        self._totals += torch.stack([getattr(losses, name).detach() for name in COUNTED])
        self._steps += 1
        if step % self._every == 0 or step in self.EARLY_STEPS:
            self._write(step)

    def _write(self, step: int) -> None:
        means = (self._totals / self._steps).tolist()
        passed_s = time.monotonic() - self._since
        line = {"step": step, **{name: round(value, 4) for name, value in zip(COUNTED, means, strict=True)}}
        line |= {"steps_per_s": round(self._steps / passed_s, 2), "waiting": round(self._waited_s / passed_s, 2)}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        print(line, flush=True)
        self._totals.zero_()
        self._steps, self._waited_s, self._since = 0, 0.0, time.monotonic()


def main_with(arguments: list[str] | None = None) -> None:
    """Read the arguments, by default the command line's, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--until-step", type=int, default=30_000)
    parser.add_argument("--patch-rows", type=int, default=PATCH_ROWS)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main_with()

"""Train the demo model. One seed, one GPU, in runs of a few minutes that go on from the last checkpoint.

    python training/train.py WORK_FOLDER --minutes 9 --until-step 60000

WORK_FOLDER keeps `state.pt` (weights, averaged weights, optimizer, step) and `log.jsonl`. The learning rate warms up,
stays, and falls to zero over the last four fifths of `--until-step`. `training/export.py` turns the averaged weights
into the packaged checkpoint.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from layout import demo_layout, demo_tokenizer_json
from network import Losses, PackedExamples
from padding import Capacity
from run import Run
from stream import ExampleStream
from torch import Tensor
from torch.utils.data import DataLoader

import foveate
from foveate.checkpoints.writing import write_settings
from foveate.models.lfm2_vl.config import read_model_config
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor

MIXTURE = {
    "read_lines": 14,
    "read_page": 8,
    "read_form": 8,
    "transcription": 5,
    "printed_text": 22,
    "see_shapes": 16,
    "see_counting": 20,
    "see_relations": 22,
    "digits": 5,
    "pairs": 22,
    "unknown": 6,
    "describe": 2,
}
"""How often each lesson comes: what is hard to learn often, as long as it is quick to draw."""
PATCH_ROWS = 65_536
WARM_UP_STEPS, DECAY_SHARE = 200, 0.8
SAVE_EVERY_STEPS = 5000
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


def rate_at(step: int, until_step: int) -> float:
    """Return the share of the full learning rate at a step."""
    decay_from = until_step * (1 - DECAY_SHARE)
    falling = 1.0 if step < decay_from else max(0.0, (until_step - step) / (until_step - decay_from))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * falling


def train(arguments: argparse.Namespace) -> None:
    """Train until the time or the steps are used up."""
    end = time.monotonic() + arguments.minutes * 60
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model, processor = build(Path(folder), arguments.seed)
    if arguments.initial:
        served = foveate.load(arguments.initial, device="cpu", dtype="float32")
        model.load_state_dict(served.model.state_dict())
    run = Run(arguments.work / "state.pt", model, device, seed=arguments.seed)
    capacity = Capacity(arguments.patch_rows, arguments.patch_rows * 7 // 16)
    mixture = {kind: weight * (arguments.times if kind in arguments.more else 1) for kind, weight in MIXTURE.items()}
    stream = ExampleStream(processor, mixture, capacity, start=run.next_seed())
    # Forked from a server that has imported everything once: spawned ones would each take seconds to import it, one
    # after another, and the parent has threads of its own by now.
    multiprocessing.set_forkserver_preload(["stream"])
    batches = DataLoader(
        stream,
        batch_size=None,
        num_workers=arguments.workers,
        prefetch_factor=3 if arguments.workers else None,
        pin_memory=device.type == "cuda",
        multiprocessing_context="forkserver" if arguments.workers else None,
    )
    feed = iter(batches)
    memory, meter = Memory(arguments.uses, device), Meter(arguments.work / "log.jsonl", arguments.log_every, device)
    while run.step < arguments.until_step and time.monotonic() < end:
        with meter.waiting():
            batch = memory.next(feed, run.step)
        losses = run.learn(batch, arguments.rate * rate_at(run.step, arguments.until_step))
        meter.count(run.step, losses)
        if run.step % SAVE_EVERY_STEPS == 0:
            run.save()
        del batch, losses
    run.save()
    print(f"{run.step} steps of {arguments.until_step} are done", flush=True)
    del feed, batches


class Memory:
    """Batches on the device that were drawn before. Each is used some times, as drawing takes longer than learning.

    Source: "Faster neural network training with data echoing", https://arxiv.org/abs/1907.05550
    """

    MOST_BATCHES = 400
    FEWEST_BATCHES = 32
    """Before there are so many, all are fresh: the same few again would be learned by heart."""

    def __init__(self, uses: int, device: torch.device) -> None:
        self._uses, self._device = uses, device
        self._batches: list[PackedExamples] = []
        self._drawn = 0

    def next(self, feed: Iterator[PackedExamples], step: int) -> PackedExamples:
        """Return a fresh batch every `uses` steps, and one of those before otherwise."""
        if step % self._uses and len(self._batches) >= self.FEWEST_BATCHES:
            return random.Random(step).choice(self._batches)
        batch = next(feed).to(self._device)
        if len(self._batches) < self.MOST_BATCHES:
            self._batches.append(batch)
        else:
            self._batches[self._drawn % self.MOST_BATCHES] = batch
        self._drawn += 1
        return batch


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
        self._totals += torch.stack([getattr(losses, name) for name in COUNTED])
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
    parser.add_argument("--until-step", type=int, default=60_000)
    parser.add_argument("--patch-rows", type=int, default=PATCH_ROWS)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--uses", type=int, default=3, help="how often each batch is learned from")
    parser.add_argument("--initial", type=Path, help="folder of exported weights to begin with")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the full rate, for weights that know much")
    parser.add_argument("--more", nargs="+", default=[], choices=list(MIXTURE), help="lessons that come more often")
    parser.add_argument("--times", type=float, default=4.0, help="how much more often those come")
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    for name, least in (("uses", 1), ("log_every", 1), ("patch_rows", 1024), ("workers", 0), ("until_step", 0)):
        if getattr(chosen, name) < least:
            parser.error(f"--{name.replace('_', '-')} is {getattr(chosen, name)}; give at least {least}")
    if not (chosen.minutes >= 0 and chosen.rate > 0 and chosen.times > 0):
        parser.error("--minutes must be 0 or more, --rate and --times more than 0")
    train(chosen)


if __name__ == "__main__":
    main_with()

"""vLLM's encoder beside ours, in a process of its own: a missing or broken vLLM is a sentence, not an end."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from foveate.bench.ways import padded_inputs
from foveate.models.lfm2_vl.image_batch import ImageBatch

MODES: dict[str, dict[str, Any]] = {
    "vllm eager": {},
    "vllm graph": {"cudagraph_mm_encoder": True},
    "vllm tuned": {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": [64, 128, 192, *range(256, 2817, 256)],
    },
}
"""Compilation configs; the last has budgets that fit LFM2-VL's tiles."""
LONGEST_S = 900
WARM_UPS = 4


class PeerError(Exception):
    """Another engine could not be measured; the message says why in one sentence. It never leaves this package."""


@dataclass(frozen=True)
class PeerResult:
    """What the process found, a batch after another."""

    version: str
    """Of vLLM."""
    times_ms: list[list[float]]
    """Every round of each batch."""
    features: list[Tensor]
    """`[image tokens, hidden_size]` of each batch, on the host."""


class VllmPeer:
    """vLLM on one checkpoint and some batches."""

    def __init__(self, python: str | None, model: Path, dtype: torch.dtype, rounds: int) -> None:
        """`python` is an interpreter that has vLLM; None is this one. Raises PeerError if there is none."""
        self._python = _interpreter(python)
        self._job = {
            "model": str(model.resolve()),
            "dtype": str(dtype).removeprefix("torch."),
            "rounds": rounds,
            "warm_ups": WARM_UPS,
        }

    def measure(self, mode: str, batches: Sequence[ImageBatch], most_patches: int) -> PeerResult:
        """Start vLLM in one of `MODES`, and have it encode each batch. Raises PeerError if it does not."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job = {**self._job, "batches": len(batches), "compilation_config": MODES[mode]}
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            save_file(_inputs(batches, most_patches), folder / "inputs.safetensors")
            self._run(folder)
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            features = load_file(folder / "features.safetensors")
        return PeerResult(result["version"], result["times_ms"], [features[str(i)] for i in range(len(batches))])

    def _run(self, folder: Path) -> None:
        # A copy beside the job, so that this folder's modules do not hide others' from that process.
        script = shutil.copy(Path(__file__).with_name("vllm_process.py"), folder)
        command = [self._python, script, str(folder)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"vLLM was not done after {LONGEST_S} s") from None
        except OSError as error:
            raise PeerError(f"{self._python} cannot be started: {error.strerror}") from None
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise PeerError(f"vLLM ended with code {done.returncode}: {said[-1] if said else 'it said nothing'}")


def _interpreter(python: str | None) -> str:
    if python is None and importlib.util.find_spec("vllm") is None:
        raise PeerError("vLLM is not installed here; name a Python that has it with --vllm-python")
    found = shutil.which(python or sys.executable)
    if found is None:
        raise PeerError(f"{python!r} cannot be started; name a Python that has vLLM with --vllm-python")
    return str(Path(found).absolute())


def _inputs(batches: Sequence[ImageBatch], most_patches: int) -> dict[str, Tensor]:
    inputs = {}
    for index, batch in enumerate(batches):
        padded = padded_inputs(batch, most_patches)
        inputs[f"{index}.pixel_values"] = padded["pixel_values"].cpu()
        inputs[f"{index}.spatial_shapes"] = padded["spatial_shapes"].cpu()
        inputs[f"{index}.num_patches"] = torch.tensor(batch.tiles_per_image)
    return inputs

"""The command line as its user has it: arguments in; exit code, standard output and standard error out."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveate.checkpoints import new_checkpoint
from foveate.cli import run

PROCESS_TIMEOUT_S = 120


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Command = Callable[..., Result]
Complaint = Callable[..., str]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of the true layout; its words are random."""
    return new_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def endless_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same checkpoint without a token that ends an answer."""
    folder = Path(shutil.copytree(model, tmp_path_factory.mktemp("endless") / "model"))
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": []}))
    return folder


@pytest.fixture
def model_copy(model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint, to be damaged."""
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JPEG of 160x120 pixels."""
    path = tmp_path_factory.mktemp("pictures") / "noise.jpg"
    pixels = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="session")
def other_picture(picture: Path) -> Path:
    """A PNG of 64x64 pixels that looks quite different."""
    path = picture.with_name("red.png")
    Image.new("RGB", (64, 64), (200, 20, 20)).save(path)
    return path


@pytest.fixture
def foveate(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process; `describe` on the CPU, unless the arguments say otherwise."""

    def command(*arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        if words[:1] == ["describe"] and "--device" not in words:
            words[1:1] = ["--device", "cpu"]
        capsys.readouterr()
        code = run(words)
        return Result(code, *capsys.readouterr())

    return command


@pytest.fixture
def complaint(foveate: Command) -> Complaint:
    """Run a command that must fail as a user's fault does; return its one line on standard error."""

    def command(*arguments: object) -> str:
        result = foveate(*arguments)
        assert result.code == 2, result
        assert result.out == ""
        assert result.err.startswith("foveate: ")
        assert result.err.endswith("\n")
        assert result.err.count("\n") == 1
        assert "Traceback" not in result.err
        assert " at 0x" not in result.err
        return result.err

    return command


@pytest.fixture(scope="session")
def process() -> Command:
    """Run a command in a process of its own, without GPUs, as a shell would."""

    def command(*arguments: object, environment: dict[str, str] | None = None, stdout: int = subprocess.PIPE) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "foveate", *map(str, arguments)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=PROCESS_TIMEOUT_S,
            check=False,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
        )
        return Result(done.returncode, done.stdout or "", done.stderr)

    return command

"""The plain path stands on its own: Foveate without its graph runtime still describes pictures."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import foveate
from foveate.checkpoints import new_checkpoint

TIMEOUT_S = 120


@pytest.fixture
def without_graphs(tmp_path: Path) -> Path:
    """A folder that holds a copy of the package without `foveate.graphs`."""
    package = Path(foveate.__file__).parent
    shutil.copytree(package, tmp_path / "foveate", ignore=shutil.ignore_patterns("__pycache__", "graphs"))
    assert not (tmp_path / "foveate" / "graphs").exists()
    return tmp_path


COMMAND = """
import sys
import foveate
from foveate.cli import run
print(foveate.__file__, file=sys.stderr)
sys.exit(run(sys.argv[1:]))
"""


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the package in `folder`, which tells on standard error where it was found."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_describe_works_with_the_graph_runtime_deleted_and_gives_the_same_text(
    without_graphs: Path, tmp_path: Path
) -> None:
    model = new_checkpoint(tmp_path / "tiny")
    picture = tmp_path / "red.png"
    Image.new("RGB", (300, 200), (200, 20, 20)).save(picture)
    done = command(
        without_graphs, "describe", picture, "--model", model, "--max-tokens", 4, "--device", "cpu", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stderr.strip().splitlines()[0]).is_relative_to(without_graphs)
    report = json.loads(done.stdout)
    assert report["encoder"]["mode"] == "eager"
    vlm = foveate.load(model, device="cpu")
    assert report["text"] == vlm.describe(picture, sampling=foveate.SamplingParams(max_tokens=4)).text

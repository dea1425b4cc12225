"""`foveate describe --compilation-config …`: what is refused takes one line and exit code 2; what is taken shows."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveate.checkpoints import new_checkpoint
from foveate.cli import run

Describe = Callable[[object], tuple[int, str, str]]

BUDGETS = "encoder_cudagraph_token_budgets"
ITEMS = "encoder_cudagraph_max_vision_items_per_batch"
FRAMES = "encoder_cudagraph_max_frames_per_batch"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (700, 900, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def describe(model: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> Describe:
    """Describe the picture on the CPU with a compilation config; returns exit code, output and errors."""

    def command(config: object) -> tuple[int, str, str]:
        text = config if isinstance(config, str) else json.dumps(config)
        capsys.readouterr()
        options = ["--device", "cpu", "--max-tokens", "2", "--json", "--compilation-config", text]
        code = run(["describe", str(picture), "--model", str(model), *options])
        return (code, *capsys.readouterr())

    return command


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", ["not JSON"]),
        ("", ["not JSON"]),
        ("[64, 256]", ["[64, 256]", "give an object"]),
        ("null", ["None", "give an object"]),
        ({BUDGETS: []}, [BUDGETS, "0 entries", "1 to 64"]),
        ({BUDGETS: [0]}, [BUDGETS, "holds 0", "at least 1"]),
        ({BUDGETS: "64,256"}, [BUDGETS, "'64,256'", "a list"]),
        ({BUDGETS: [True]}, [BUDGETS, "holds True"]),
        ({BUDGETS: [64, None]}, [BUDGETS, "holds None"]),
        ({BUDGETS: list(range(64, 129))}, [BUDGETS, "65 entries"]),
        ({BUDGETS: [64, 10**6]}, [BUDGETS, "holds 1000000", "from 64 to 22528"]),
        ({BUDGETS: [32]}, [BUDGETS, "holds 32", "from 64 to 22528"]),
        ({BUDGETS: [64, 256], ITEMS: 5}, [ITEMS, "is 5", "at most 4 images"]),
        ({ITEMS: True}, [ITEMS, "holds True"]),
        ({FRAMES: 8}, [FRAMES, "is 8", "takes no video"]),
        ({"cudagraph_mm_encoders": True}, ["'cudagraph_mm_encoders'", "cudagraph_mm_encoder,", BUDGETS, ITEMS, FRAMES]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_config_is_one_line_and_exit_code_2(describe: Describe, config: object, words: list[str]) -> None:
    if isinstance(config, dict):
        config = {"cudagraph_mm_encoder": True, **config}
    code, out, err = describe(config)
    assert (code, out) == (2, "")
    assert err.startswith("foveate: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_the_switches_as_vllm_takes_them_are_taken_and_the_replays_are_reported(describe: Describe) -> None:
    code, out, _ = describe({"cudagraph_mm_encoder": True, BUDGETS: [64, 256, 512], ITEMS: 4, FRAMES: 0})
    encoder = json.loads(out)["encoder"]
    assert code == 0
    assert encoder["mode"] == "eager_buffers"
    assert set(encoder["replays"]) <= {64, 256, 512}
    assert sum(encoder["replays"]) == encoder["real_tokens"] + encoder["padded_tokens"]


def test_the_text_is_the_same_with_graphs_and_without(describe: Describe) -> None:
    graphs = json.loads(describe({"cudagraph_mm_encoder": True, BUDGETS: [64, 320]})[1])
    eager = json.loads(describe({"cudagraph_mm_encoder": False})[1])
    assert (graphs["encoder"]["mode"], eager["encoder"]["mode"]) == ("eager_buffers", "eager")
    assert graphs["text"] == eager["text"]


def test_without_a_config_a_cpu_runs_eagerly(describe: Describe) -> None:
    assert json.loads(describe("{}")[1])["encoder"]["mode"] == "eager"

"""A program that ends in the middle of everything ends at once, without a word."""

import subprocess
import sys
from pathlib import Path

import pytest

from foveate.checkpoints import new_checkpoint
from tests.engine.driving import PATIENCE_S

PROGRAM = """
import sys
import foveate

vlm = foveate.load(sys.argv[1], device="cpu")
messages = [{"role": "user", "content": "Hello."}]
endless = foveate.SamplingParams(max_tokens=100_000, ignore_stop_tokens=True)
"""
ENDS = {
    "in the middle of an answer": "stream = iter(vlm.stream(messages, endless)); next(stream)",
    "while nobody listens": "from foveate.engine.engine import Engine; vlm.engine.submit(messages, endless, id)",
    "idle": "vlm.chat(messages, foveate.SamplingParams(max_tokens=2))",
    "closed": "vlm.chat(messages, foveate.SamplingParams(max_tokens=2)); vlm.close()",
    "by an error": "stream = iter(vlm.stream(messages, endless)); next(stream); sys.exit(3)",
}


FORKED = """
import os
from foveate.errors import ClosedError

vlm.chat(messages, foveate.SamplingParams(max_tokens=2))
child = os.fork()
try:
    vlm.chat(messages, foveate.SamplingParams(max_tokens=2))
except ClosedError as error:
    print(error)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_that_was_forked_is_told_that_the_engine_is_its_parents(tmp_path: Path):
    folder = new_checkpoint(tmp_path / "model", "tiny")
    command = [sys.executable, "-c", PROGRAM + FORKED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "load the model after the fork" in done.stdout


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_when_its_main_thread_does(tmp_path: Path, end: str):
    folder = new_checkpoint(tmp_path / "model", "tiny")
    command = [sys.executable, "-W", "error", "-c", PROGRAM + ENDS[end], str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (3 if end == "by an error" else 0, "")

"""What only a process of its own can show: pipes, signals, and what Python itself does at its exit."""

import os
import signal
import subprocess
import sys

import pytest

ENDLESS_TOKENS = 100_000
# A shell that runs tests in the background has them ignore Ctrl-C, and their children with them: a terminal does not.
AS_IN_A_TERMINAL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from foveate.cli import main; main()"
)


@pytest.fixture
def endless(endless_model, picture):
    """A process that has begun to print an answer without end."""
    arguments = ["describe", picture, "--model", endless_model, "--device", "cpu", "--max-tokens", ENDLESS_TOKENS]
    with subprocess.Popen(
        [sys.executable, "-c", AS_IN_A_TERMINAL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        yield process
        process.kill()


def test_a_terminal_without_unicode_gets_its_answer(process, picture, endless_model):
    options = ("--max-tokens", 300, "--temperature", 2, "--seed", 1)
    arguments = ("describe", picture, "--model", endless_model, *options)
    told = process(*arguments, environment={"PYTHONIOENCODING": "ascii"})
    assert (told.code, told.err) == (0, "")
    assert told.out.isascii()
    assert "?" in told.out


def test_cuda_that_is_not_there_is_one_line_and_exit_code_2(process, picture, model):
    refused = process("describe", picture, "--model", model, "--device", "cuda")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1
    assert "has 0 CUDA devices" in refused.err


def test_a_reader_that_leaves_ends_it_in_silence(endless):
    """As `| head -c 1` does; no trace, neither from Foveate nor from Python's own last flush."""
    endless.stdout.close()
    assert endless.stderr.read() == b""
    assert endless.wait() == 1


def test_ctrl_c_ends_it_with_130_and_no_trace(endless):
    endless.send_signal(signal.SIGINT)
    _, errors = endless.communicate()
    assert errors == b""
    assert endless.returncode == 130


def test_output_that_cannot_be_written_is_one_line_and_exit_code_2(process, picture, model):
    """A standard output that is open for reading only fails at every write, as a full disk does."""
    read_only = os.open(picture, os.O_RDONLY)
    try:
        result = process("describe", picture, "--model", model, "--max-tokens", 4, "--json", stdout=read_only)
    finally:
        os.close(read_only)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert result.err.startswith("foveate: standard output cannot be written")

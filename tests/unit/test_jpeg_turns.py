"""Threads that wait for the GPU's JPEG decoder share its next call, and none pays for another's file."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from foveate.images import NvImageCodec

THREADS = 6


class SlowCodec(NvImageCodec):
    """Takes a while; a file `bad` spoils the whole call. The first call waits until all threads have asked."""

    def __init__(self) -> None:
        self._turn, self._waiting, self._waiting_lock = threading.Lock(), [], threading.Lock()
        self.calls: list[tuple[list[bytes], int]] = []

    def _decode(self, files: Sequence[bytes], stream: int) -> list[Any]:
        self.calls.append((list(files), stream))
        deadline = time.monotonic() + 10
        while len(self.calls) == 1 and len(self._waiting) < THREADS - 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        if b"bad" in files:
            raise RuntimeError("a bad file")
        return [f"{stream} ".encode() + file for file in files]


def ask_all(codec: SlowCodec, asked: Sequence[tuple[list[bytes], int]]) -> list[Any]:
    """Ask from as many threads; the first one is in its call when the others come. Errors are returned."""

    def ask(files: list[bytes], stream: int) -> Any:
        try:
            return codec.decode(files, stream)
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        first = pool.submit(ask, *asked[0])
        while not codec.calls:
            time.sleep(0.001)
        return [future.result() for future in [first, *[pool.submit(ask, *each) for each in asked[1:]]]]


def test_those_who_wait_share_the_next_call_and_each_gets_its_own():
    codec = SlowCodec()
    asked = [([f"{number}".encode(), b"more"][: 1 + number % 2], 7) for number in range(THREADS)]
    made = ask_all(codec, asked)
    assert made == [[b"7 " + file for file in files] for files, _ in asked]
    assert len(codec.calls) == 2
    assert len(codec.calls[1][0]) == sum(len(files) for files, _ in asked[1:])


def test_streams_are_not_mixed():
    codec = SlowCodec()
    asked = [([f"{number}".encode()], number % 2) for number in range(THREADS)]
    assert ask_all(codec, asked) == [[f"{stream} ".encode() + files[0]] for files, stream in asked]
    assert len(codec.calls) == 3
    for files, stream in codec.calls:
        assert {int(file) % 2 for file in files} == {stream}


@pytest.mark.parametrize("place", [0, 3])
def test_a_file_that_spoils_a_call_spoils_it_for_its_own_thread_alone(place: int):
    codec = SlowCodec()
    asked = [([b"bad" if number == place else f"{number}".encode()], 0) for number in range(THREADS)]
    made = ask_all(codec, asked)
    for number, found in enumerate(made):
        if number == place:
            assert isinstance(found, RuntimeError)
        else:
            assert found == [b"0 " + asked[number][0][0]]
    assert codec._waiting == []


def test_no_files_are_no_trouble():
    codec = SlowCodec()
    codec.calls.append(([], 0))
    assert codec.decode([], 0) == []

"""Checkpoints of every public layout, each loaded by Foveate and by transformers, and both kept quiet and exact."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from transformers.utils import logging

from foveate.checkpoints import LAYOUT_NAMES, layout, new_checkpoint, shrunk
from tests.parity.reference import Pair, load_pair, save_by_transformers

PUBLIC = tuple(name for name in LAYOUT_NAMES if name != "tiny")
SAVED = "saved by transformers"
CHECKPOINTS = (*PUBLIC, *(f"{name}, transformers' names" for name in PUBLIC), SAVED)


@pytest.fixture(scope="session", autouse=True)
def exact_arithmetic() -> Iterator[None]:
    """Two threads at most, and no TensorFloat-32."""
    threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    torch.set_num_threads(min(2, threads))
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = tf32


@pytest.fixture(scope="session", autouse=True)
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice in the log of a failing test."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()
    logging.set_verbosity(verbosity)


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Return a function from a name of `CHECKPOINTS` to its pair, made once."""

    @cache
    def make(name: str) -> Pair:
        folder = tmp_path_factory.mktemp("checkpoints") / "model"
        if name == SAVED:
            return load_pair(save_by_transformers(folder, make("LFM2.5-VL-1.6B").folder))
        public, _, other_names = name.partition(", ")
        names = "transformers" if other_names else "official"
        return load_pair(new_checkpoint(folder, shrunk(layout(public)), names=names))

    return make


@pytest.fixture(scope="session", params=CHECKPOINTS)
def pair(request: pytest.FixtureRequest, pair_of: Callable[[str], Pair]) -> Pair:
    """Each checkpoint in turn, under both kinds of tensor names."""
    return pair_of(request.param)


@pytest.fixture(scope="session", params=(*PUBLIC, SAVED))
def kind(request: pytest.FixtureRequest, pair_of: Callable[[str], Pair]) -> Pair:
    """Each kind of checkpoint in turn, once."""
    return pair_of(request.param)

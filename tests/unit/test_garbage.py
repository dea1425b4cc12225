"""Loading puts Python's garbage collection off, and only loading."""

import gc
import os
import threading

import pytest

import foveate
from foveate import loading
from foveate.garbage import collection_put_off


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    gc.enable()


def test_collection_goes_on_after_the_block_and_after_an_error_in_it():
    with collection_put_off():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collection_put_off():
        raise KeyError
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off():
    gc.disable()
    with collection_put_off():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_of_blocks_in_several_threads_the_last_to_end_switches_it_on():
    is_in, may_end = threading.Event(), threading.Event()

    def stay() -> None:
        with collection_put_off():
            is_in.set()
            may_end.wait(10)

    thread = threading.Thread(target=stay)
    with collection_put_off():
        thread.start()
        assert is_in.wait(10)
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_is_forked_meanwhile_collects():
    with collection_put_off():
        child = os.fork()
        if not child:
            is_right = gc.isenabled()
            with collection_put_off():
                is_right &= not gc.isenabled()
            os._exit(0 if is_right and gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(("step", "is_collecting"), [("find_folder", True), ("read_model_config", False)])
def test_a_model_is_loaded_without_it_but_downloaded_with_it_and_a_load_that_fails_leaves_it_on(
    monkeypatch, step, is_collecting
):
    seen = []
    monkeypatch.setattr(loading, step, lambda _: seen.append(gc.isenabled()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        foveate.load()
    assert seen == [is_collecting]
    assert gc.isenabled()

"""Loading puts Python's garbage collection off, and only loading."""

import gc

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


def test_a_model_is_loaded_without_it_and_a_load_that_fails_leaves_it_on(monkeypatch):
    seen = []
    monkeypatch.setattr(loading, "find_folder", lambda _: seen.append(gc.isenabled()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        foveate.load()
    assert seen == [False]
    assert gc.isenabled()

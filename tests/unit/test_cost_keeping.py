"""Where measured costs are kept, and what makes them stale."""

import shutil
from pathlib import Path

import pytest

import foveate
from foveate.engine import encoder_key
from foveate.engine.encoder_costs import cost_store
from foveate.engine.encoder_key import code_version
from foveate.machine import cache_folder
from foveate.testing import random_vlm


def test_the_cache_folder_is_that_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "foveate"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_usable_one_it_is_in_the_home_folder(monkeypatch, tmp_path, value):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "foveate"


def test_without_a_home_there_is_none(monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder() is None


def test_on_a_cpu_nothing_is_kept():
    assert cost_store(random_vlm("tiny", device="cpu", dtype="float32").model) is None


def test_costs_are_stale_when_a_kernel_changes_and_not_when_a_command_does(monkeypatch, tmp_path):
    package = tmp_path / "foveate"
    shutil.copytree(Path(foveate.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    monkeypatch.setattr(encoder_key, "__file__", str(package / "engine" / "encoder_key.py"))

    def version() -> str:
        code_version.cache_clear()
        return code_version()

    before = version()
    (package / "commands" / "app.py").write_text("")
    assert version() == before
    (package / "kernels" / "norm.py").write_text("")
    assert version() != before
    code_version.cache_clear()

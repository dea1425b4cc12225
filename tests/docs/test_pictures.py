"""Drawings in the documents are those that the committed results make."""

import importlib
from types import ModuleType

import pytest


@pytest.fixture
def pictures(project, monkeypatch) -> ModuleType:
    """`benchmarks/pictures.py`, imported as its own folder's modules see it."""
    monkeypatch.syspath_prepend(project / "benchmarks")
    return importlib.import_module("pictures")


def test_every_drawing_is_committed_and_shown_with_the_benchmarks(pictures, project):
    """`python benchmarks/pictures.py` makes them."""
    text = (project / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in pictures.DRAWINGS:
        assert (pictures.PICTURES / f"{name}.svg").is_file(), name
        assert f"](pictures/{name}.svg)" in text


def test_the_committed_results_can_be_drawn(pictures):
    for name, made in pictures.DRAWINGS.items():
        axes = made().axes
        assert axes, name
        assert all(each.has_data() for each in axes), name


def test_no_implementation_is_drawn_faster_than_the_least_possible(pictures):
    for size in pictures.SIZES:
        for row in pictures.encoder_rows(size):
            assert all(times["median_ms"] > row["floor_ms"] for times in row["ways"].values()), (size, row)

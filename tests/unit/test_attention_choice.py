"""The encoder's attention on a card: the faster one that works, kept on disk."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import foveate.kernels.attention as attention_module
from foveate.engine import encoder_kernels
from foveate.engine.encoder_kernels import choose_attention
from foveate.kernels import availability
from foveate.kernels.attention import attention, packed_attention_reference, take_attention
from foveate.kernels.attention_choice import LIBRARY, OURS, WAYS, prefer
from foveate.testing import random_vlm


@pytest.mark.parametrize(
    ("times_us", "taken"),
    [
        ({"triton": 50.0, "flash": 130.0}, OURS),
        ({"triton": 50.0, "flash": 48.0}, OURS),
        ({"triton": 50.0, "flash": 47.0}, LIBRARY),
        ({"flash": 47.0}, LIBRARY),
        ({"triton": 47.0}, OURS),
        ({}, OURS),
    ],
)
def test_the_librarys_is_taken_where_ours_does_not_work_or_it_saves_more_than_5_percent(times_us, taken):
    assert prefer(times_us) == taken


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A small model that says it is on a card."""
    config = random_vlm("tiny", device="cpu", dtype="float32").model.config
    monkeypatch.setattr(encoder_kernels, "encoder_key", lambda _: {"card": "a card"})
    monkeypatch.setattr(encoder_kernels, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(attention_module, "_TAKEN", {})
    monkeypatch.setattr(availability, "_FAULTS", [])
    return SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.bfloat16, config=config)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list:
    """What was asked to be measured."""
    asked: list = []

    def measure(setting, device):
        asked.append((setting, device))
        return {"triton": 60.0, "flash": 40.0}

    monkeypatch.setattr(encoder_kernels, "measure_attention", measure)
    return asked


def test_it_is_measured_once_and_kept(model, measured):
    first = choose_attention(model)
    assert first == choose_attention(model) == {"triton": 60.0, "flash": 40.0}
    assert len(measured) == 1
    setting, device = measured[0]
    assert (setting.heads, setting.head_size) == (model.config.vision.num_heads, model.config.vision.head_size)
    assert setting.longest == model.config.images.longest_tile_patches
    assert device == model.device
    assert len(attention_module._TAKEN) == 1
    choose_attention(model, refresh=True)
    assert len(measured) == 2


@pytest.mark.usefixtures("measured")
def test_what_is_measured_anew_takes_the_place_of_what_was_taken(model, monkeypatch):
    choose_attention(model)
    assert list(attention_module._TAKEN.values()) == [WAYS[LIBRARY]]
    monkeypatch.setattr(encoder_kernels, "measure_attention", lambda *_: {"triton": 30.0, "flash": 40.0})
    choose_attention(model, refresh=True)
    assert list(attention_module._TAKEN.values()) == [WAYS[OURS]]


def test_where_nothing_could_be_measured_nothing_is_taken(model, monkeypatch):
    monkeypatch.setattr(encoder_kernels, "measure_attention", lambda *_: {})
    assert choose_attention(model) == {}
    assert attention_module._TAKEN == {}


DAMAGED = {
    "no JSON": "no JSON",
    "another key": json.dumps({"key": {"card": "another"}, "microseconds": {"triton": 1}}),
    "an unknown way": json.dumps({"key": {"card": "a card"}, "microseconds": {"magic": 1}}),
    "no number": json.dumps({"key": {"card": "a card"}, "microseconds": {"triton": "fast"}}),
    "a time of zero": json.dumps({"key": {"card": "a card"}, "microseconds": {"triton": 0}}),
    "a list": "[]",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_measured_again(model, measured, tmp_path, text):
    choose_attention(model)
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text(text)
    choose_attention(model)
    assert len(measured) == 2


def test_a_folder_that_cannot_be_written_is_a_warning(model, measured, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file")
    assert choose_attention(model)
    assert "cannot be written" in caplog.text
    assert len(measured) == 1


def test_on_a_cpu_and_where_kernels_are_switched_off_nothing_is_measured(model, measured, monkeypatch):
    assert choose_attention(SimpleNamespace(device=torch.device("cpu"))) == {}
    monkeypatch.setattr(availability, "_FAULTS", ["wrong"])
    assert choose_attention(model) == {}
    assert measured == []


def test_a_cpu_keeps_the_twin_whatever_was_taken_for_a_card(monkeypatch):
    monkeypatch.setattr(attention_module, "_TAKEN", {})
    query, bounds = torch.randn(5, 2, 8), torch.tensor([0, 3, 5], dtype=torch.int32)
    take_attention(lambda *_: 1 / 0, torch.device("cpu"), torch.float32, 2, 8)
    expected = packed_attention_reference(query, query, query, bounds)
    assert torch.equal(attention(query, query, query, bounds, 3), expected)

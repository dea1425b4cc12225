"""A kernel that is wrong on a machine is found at start, and its twin runs instead."""

import logging
from types import SimpleNamespace

import pytest
import torch

from foveate.engine.encoding import EagerImageEncoder
from foveate.kernels import availability
from foveate.loading import choose_encoder, parse_compilation_config
from foveate.models.lfm2_vl import kernel_check
from foveate.testing import random_vlm


@pytest.fixture
def model(monkeypatch):
    """A small model, on a machine that says it has the kernels."""
    monkeypatch.setattr(availability, "_FAULTS", [])
    monkeypatch.setattr(kernel_check, "runs_triton", lambda *_: True)
    return random_vlm("tiny", device="cpu", dtype="float32").model


def kernels_do(monkeypatch, change):
    """Let whatever does not run under `twins_only` give the changed results."""
    right = kernel_check.run_both_parts

    def run(model):
        found = right(model)
        return found if availability._TWINS_ONLY.get() else change(found)

    monkeypatch.setattr(kernel_check, "run_both_parts", run)


def test_kernels_that_agree_stay_on(model, caplog):
    kernel_check.check_kernels(model)
    assert availability.fault() is None
    assert not caplog.records


def test_the_check_runs_real_numbers_through_both_parts(model):
    found = kernel_check.run_both_parts(model)
    assert all(torch.isfinite(part).all() and part.float().std() > 0 for part in found.values())
    again = kernel_check.run_both_parts(model)
    assert all(torch.equal(part, again[name]) for name, part in found.items())


@pytest.mark.parametrize(
    "part", ["the encoder", "a prefill", "a decode step", "the keys of both", "the states of both"]
)
@pytest.mark.parametrize("change", [lambda rows: rows.roll(1, -1), lambda rows: rows * float("nan")])
def test_wrong_numbers_switch_them_off_and_are_logged(model, monkeypatch, caplog, part, change):
    kernels_do(monkeypatch, lambda found: {**found, part: change(found[part])})
    kernel_check.check_kernels(model)
    assert availability.fault().startswith(f"{part} is ")
    assert caplog.records[0].levelno == logging.ERROR
    assert not availability.runs_triton()


def test_a_compiler_that_fails_switches_them_off(model, monkeypatch):
    def fail(_):
        raise RuntimeError("ptxas died")

    kernels_do(monkeypatch, fail)
    kernel_check.check_kernels(model)
    assert "ptxas died" in availability.fault()


def test_without_the_kernels_nothing_is_run(monkeypatch):
    model = random_vlm("tiny", device="cpu", dtype="float32").model
    monkeypatch.setattr(kernel_check, "run_both_parts", lambda _: pytest.fail("there is nothing to compare"))
    kernel_check.check_kernels(model)


def test_without_kernels_a_card_has_no_graphs_whatever_was_asked(model, monkeypatch):
    """The twin of the attention waits for the device, which a capture cannot."""
    monkeypatch.setattr(availability, "_FAULTS", ["wrong"])
    on_card = SimpleNamespace(device=torch.device("cuda", 0), encoder=model.encoder)
    settings = parse_compilation_config({"cudagraph_mm_encoder": True})
    assert isinstance(choose_encoder(on_card, settings), EagerImageEncoder)

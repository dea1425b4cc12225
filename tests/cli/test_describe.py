"""`foveate describe` that succeeds."""

import io
import json
import sys

import pytest
from PIL import Image

from foveate.loading import DEMO_MODEL

STAGES = ("load", "decode_images", "pixels", "prompt", "waiting", "encode", "prefill", "decode")


@pytest.fixture
def describe(foveate, model):
    """Describe pictures; returns what was printed."""

    def command(*arguments, model=model):
        result = foveate("describe", *arguments, "--model", model)
        assert (result.code, result.err) == (0, "")
        return result.out

    return command


def test_json_is_exactly_one_line_with_the_answer_and_how_it_was_made(describe, picture, model):
    out = describe(picture, "--max-tokens", 8, "--json")
    assert out.endswith("\n")
    assert out.count("\n") == 1
    record = json.loads(out)
    assert isinstance(record["text"], str)
    assert record["prompt_tokens"] > 64
    assert 1 <= record["completion_tokens"] <= 8
    assert record["finish_reason"] in ("stop", "length")
    assert (record["model"], record["device"], record["dtype"]) == (str(model), "cpu", "float32")
    assert set(STAGES) <= set(record["stages_ms"])
    assert all(isinstance(stage_ms, float) and stage_ms >= 0 for stage_ms in record["stages_ms"].values())


def test_without_a_model_the_one_that_ships_with_foveate_answers(foveate, picture):
    options = ("describe", picture, "--max-tokens", 8, "--device", "cpu")
    result = foveate(*options, "--json")
    assert (result.code, result.err) == (0, "")
    record = json.loads(result.out)
    assert record["model"] == "foveate-demo"
    named = json.loads(foveate(*options, "--model", DEMO_MODEL, "--json").out)
    assert (named["model"], named["text"]) == (str(DEMO_MODEL), record["text"])


def test_the_streamed_text_is_the_text_of_the_json(describe, picture, endless_model):
    options = (picture, "--max-tokens", 100)
    record = json.loads(describe(*options, "--json", model=endless_model))
    assert (record["finish_reason"], record["completion_tokens"]) == ("length", 100)
    assert describe(*options, model=endless_model) == record["text"] + "\n"


def test_the_encoder_graphs_plans_give_the_text_of_the_eager_encoder(describe, picture):
    """Without CUDA the same plans run over the same padded buffers, kernel by kernel."""
    config = {"cudagraph_mm_encoder": True, "encoder_cudagraph_token_budgets": [64, 256]}
    options = (picture, "--max-tokens", 16, "--json")
    planned = json.loads(describe(*options, "--compilation-config", json.dumps(config)))
    eager = json.loads(describe(*options, "--compilation-config", '{"cudagraph_mm_encoder": false}'))
    assert (planned["encoder"]["mode"], planned["encoder"]["replays"]) == ("eager_buffers", [256])
    assert eager["encoder"]["mode"] == "eager"
    assert planned["text"] == eager["text"]


def test_the_same_seed_gives_the_same_text_and_another_seed_another(describe, picture):
    options = (picture, "--max-tokens", 24, "--temperature", 1.5)
    first = describe(*options, "--seed", 7)
    assert describe(*options, "--seed", 7) == first
    assert describe(*options, "--seed", 8) != first


def test_temperature_0_repeats_itself_without_a_seed(describe, picture):
    assert describe(picture, "--max-tokens", 16) == describe(picture, "--max-tokens", 16)


def test_several_pictures_go_into_one_question_in_their_order(describe, picture, other_picture):
    def ask(*pictures):
        return json.loads(describe(*pictures, "--max-tokens", 16, "--json"))

    one, both, turned = ask(picture), ask(picture, other_picture), ask(other_picture, picture)
    assert both["prompt_tokens"] == turned["prompt_tokens"] > one["prompt_tokens"] + 64
    assert len({one["text"], both["text"], turned["text"]}) == 3


def test_the_prompt_is_what_is_asked(describe, picture):
    assert describe(picture, "--max-tokens", 16) != describe(picture, "--max-tokens", 16, "--prompt", "How many?")


def test_a_tiled_picture_fills_the_prompt_with_its_image_tokens(describe, picture, tmp_path):
    Image.open(picture).resize((1280, 720)).save(tmp_path / "large.png")
    record = json.loads(describe(tmp_path / "large.png", "--max-tokens", 1, "--json"))
    assert record["prompt_tokens"] > 764  # Two tiles of 256 tokens and a thumbnail of 252.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_type_that_was_asked_for_is_used(describe, picture, dtype):
    assert json.loads(describe(picture, "--max-tokens", 1, "--json", "--dtype", dtype))["dtype"] == dtype


def test_a_terminal_without_the_characters_gets_question_marks(describe, picture, endless_model, monkeypatch):
    options = (picture, "--max-tokens", 300, "--temperature", 2, "--seed", 1)
    text = json.loads(describe(*options, "--json", model=endless_model))["text"]
    assert not text.isascii()
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="")
    monkeypatch.setattr(sys, "stdout", terminal)
    describe(*options, model=endless_model)
    assert terminal.buffer.getvalue() == text.encode("ascii", "replace") + b"\n"

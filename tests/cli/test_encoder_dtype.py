"""`foveate describe --encoder-dtype`."""

import json


def test_the_encoder_runs_in_float8_when_asked_and_the_log_says_that_it_is_not_verified(
    foveate, picture, model, caplog
):
    options = ("--device", "cpu", "--max-tokens", 2, "--model", model, "--encoder-dtype", "fp8", "--json")
    result = foveate("describe", picture, *options)
    assert result.code == 0
    assert json.loads(result.out)["completion_tokens"] >= 1
    assert "float8 (e4m3): not verified on released checkpoints" in caplog.text


def test_another_type_is_refused_in_one_line(foveate, picture, model):
    result = foveate("describe", picture, "--model", model, "--encoder-dtype", "int4")
    assert result.code == 2
    assert "encoder_dtype is 'int4'; allowed are auto and fp8" in result.err

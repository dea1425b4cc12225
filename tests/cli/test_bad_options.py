"""An option that cannot be used: exit code 2 and one line that names it, what was got and the bound."""

import pytest


@pytest.mark.parametrize("value", [0, -1])
def test_max_tokens_below_1_is_refused(complaint, picture, model, value):
    line = complaint("describe", picture, "--model", model, "--max-tokens", value)
    assert f"max_tokens is {value}" in line
    assert "at least 1" in line


def test_more_tokens_than_the_model_has_positions_for_is_refused_with_the_bound(complaint, picture, model):
    line = complaint("describe", picture, "--model", model, "--max-tokens", 10**9)
    assert "128000" in line
    assert "lower max_tokens" in line


@pytest.mark.parametrize("value", ["-0.1", "nan", "inf", "-inf", "101"])
def test_a_temperature_out_of_bounds_is_refused(complaint, picture, model, value):
    line = complaint("describe", picture, "--model", model, "--temperature", value)
    assert f"temperature is {value}" in line
    assert "from 0 to 100" in line


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_seed_out_of_bounds_is_refused(complaint, picture, model, value):
    assert f"seed is {value}" in complaint("describe", picture, "--model", model, "--seed", value)


@pytest.mark.parametrize("option", ["--max-tokens", "--seed", "--temperature"])
def test_words_are_not_taken_for_numbers(complaint, picture, model, option):
    assert f"'{option}'" in complaint("describe", picture, "--model", model, option, "abc")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "not JSON"),
        ("[]", "give an object"),
        ('{"cudagraph": true}', "unknown key 'cudagraph'"),
        ('{"cudagraph_mm_encoder": "yes"}', "give true or false"),
        ('{"encoder_cudagraph_token_budgets": [0]}', "at least 1"),
    ],
)
def test_a_compilation_config_that_cannot_be_used_is_told_why(complaint, picture, model, config, words):
    assert words in complaint("describe", picture, "--model", model, "--compilation-config", config)


def test_an_unknown_option_is_named_with_where_to_look(complaint, picture):
    line = complaint("describe", picture, "--bogus")
    assert "--bogus" in line
    assert "foveate describe --help" in line


def test_an_option_without_its_value_is_named(complaint, picture):
    assert "'--max-tokens' requires an argument" in complaint("describe", picture, "--max-tokens")


def test_an_unknown_command_is_named(complaint):
    assert "'explain'" in complaint("explain")


def test_describe_without_a_picture_is_told_what_is_missing(complaint, model):
    assert "PICTURE" in complaint("describe", "--model", model)


def test_a_prompt_that_is_not_unicode_is_refused(complaint, picture, model):
    assert "lone surrogate" in complaint("describe", picture, "--model", model, "--prompt", "caf\udce9")


def test_foveate_alone_shows_its_commands(foveate):
    result = foveate()
    assert (result.code, result.err) == (0, "")
    assert all(command in result.out for command in ("describe", "doctor", "new-checkpoint"))


@pytest.mark.parametrize("command", [(), ("describe",), ("doctor",), ("new-checkpoint",)])
def test_help_is_text_on_standard_output(foveate, command):
    result = foveate(*command, "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(" ".join(("Usage: foveate", *command)))

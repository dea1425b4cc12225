"""Sampling settings are checked once, with the name, the value and the bound in the message."""

import dataclasses
import math
import re

import pytest

from foveate.config import MAX_SEED, SamplingParams
from foveate.errors import ConfigurationError

BAD = [
    ("max_tokens", 0, "at least 1"),
    ("max_tokens", -5, "at least 1"),
    ("max_tokens", 2.0, "at least 1"),
    ("max_tokens", None, "at least 1"),
    ("max_tokens", True, "at least 1"),
    ("temperature", -0.1, "from 0 to 100"),
    ("temperature", 100.1, "from 0 to 100"),
    ("temperature", math.nan, "from 0 to 100"),
    ("temperature", math.inf, "from 0 to 100"),
    ("temperature", "warm", "from 0 to 100"),
    ("temperature", None, "from 0 to 100"),
    ("top_p", 0, "above 0 to 1"),
    ("top_p", 1.1, "above 0 to 1"),
    ("top_k", -1, "at least 0"),
    ("top_k", 1.5, "at least 0"),
    ("min_p", -0.1, "from 0 to 1"),
    ("min_p", 1.1, "from 0 to 1"),
    ("repetition_penalty", 0, "from 0.01 to 100"),
    ("repetition_penalty", 101, "from 0.01 to 100"),
    ("repetition_penalty", False, "from 0.01 to 100"),
    ("presence_penalty", -2.1, "from -2 to 2"),
    ("presence_penalty", math.nan, "from -2 to 2"),
    ("frequency_penalty", 2.1, "from -2 to 2"),
    ("frequency_penalty", True, "from -2 to 2"),
    ("seed", -1, f"from 0 to {MAX_SEED}"),
    ("seed", MAX_SEED + 1, f"from 0 to {MAX_SEED}"),
    ("seed", "x", f"from 0 to {MAX_SEED}"),
    ("stop", "", "at least one character"),
    ("stop", ["a", ""], "at least one character"),
    ("stop", [1], "at least one character"),
    ("stop", 5, "at least one character"),
    ("stop", None, "at least one character"),
]
EDGES = [
    ("max_tokens", 1),
    ("temperature", 0),
    ("temperature", 100),
    ("top_p", 1e-9),
    ("top_p", 1),
    ("top_k", 0),
    ("min_p", 0),
    ("min_p", 1),
    ("repetition_penalty", 0.01),
    ("repetition_penalty", 100.0),
    ("presence_penalty", -2),
    ("frequency_penalty", 2.0),
    ("seed", 0),
    ("seed", MAX_SEED),
    ("seed", None),
    ("stop", []),
]


@pytest.mark.parametrize(("name", "value", "bound"), BAD)
def test_a_value_out_of_bounds_is_refused_with_its_name_the_value_and_the_bound(name: str, value: object, bound: str):
    with pytest.raises(ConfigurationError, match=rf"^{name} is {re.escape(repr(value))}; .*{re.escape(bound)}$"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), EDGES)
def test_a_value_at_its_bound_is_taken(name: str, value: object):
    assert getattr(SamplingParams(**{name: value}), name) == (tuple(value) if name == "stop" else value)


def test_an_error_of_configuration_is_also_a_value_error():
    with pytest.raises(ValueError, match="max_tokens"):
        SamplingParams(max_tokens=0)


def test_one_stop_text_may_be_given_alone():
    assert SamplingParams(stop="END").stop == ("END",)


def test_the_defaults_are_greedy_and_unknown_names_are_errors():
    assert SamplingParams().is_greedy
    assert not SamplingParams(temperature=0.1).is_greedy
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)


def test_settings_do_not_change_once_made():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().max_tokens = 3

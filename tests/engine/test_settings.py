"""What an engine may be told, checked once, with the bound in the message."""

import math
import re

import pytest

from foveate import EngineSettings
from foveate.errors import ConfigurationError

BAD = [
    ("max_running", 0, "from 1 to 512"),
    ("max_running", 513, "from 1 to 512"),
    ("max_running", 2.0, "from 1 to 512"),
    ("max_running", True, "from 1 to 512"),
    ("prefill_tokens_per_step", 0, "from 1 to 1048576"),
    ("max_waiting", 0, "from 1 to 1048576"),
    ("max_overtakes", "many", "from 0 to 1048576"),
    ("images_per_encode", 0, "from 1 to 4096"),
    ("pixel_threads", 65, "from 1 to 64"),
    ("steps_ahead", 2, "from 0 to 1"),
    ("cache_fraction", 0, "from 0.001 to 0.95"),
    ("cache_fraction", 1, "from 0.001 to 0.95"),
    ("cache_fraction", None, "from 0.001 to 0.95"),
    ("cache_megabytes", 0, "from 0.001 to 1e+07"),
    ("cache_megabytes", math.nan, "from 0.001 to 1e+07"),
    ("image_cache_megabytes", -1, "from 0 to 1e+07"),
    ("image_cache_megabytes", None, "from 0 to 1e+07"),
]


@pytest.mark.parametrize(("name", "value", "bound"), BAD)
def test_a_value_out_of_bounds_is_refused_with_its_name_the_value_and_the_bound(name: str, value: object, bound: str):
    with pytest.raises(ConfigurationError, match=rf"^{name} is {re.escape(repr(value))}; .*{re.escape(bound)}$"):
        EngineSettings(**{name: value})


def test_the_ends_of_the_bounds_are_allowed():
    for name, value in (("max_running", 512), ("max_waiting", 1), ("cache_megabytes", None), ("steps_ahead", None)):
        assert getattr(EngineSettings(**{name: value}), name) == value

"""Which graphs there are, and what of a compilation config is refused: each with the name, the value and the bound."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.errors import ConfigurationError
from foveate.graphs import BudgetRange, EncoderGraphSettings, GraphCapacity, parse_settings
from foveate.graphs.budgets import MOST_AUTOMATIC_BUDGETS, automatic_budgets, graph_capacities

from .checks import MANY

SPAN = BudgetRange(smallest=64, largest=2816, step=256)


def capacities(frames_per_video: int = 0, **values: Any) -> tuple[GraphCapacity, ...]:
    return graph_capacities(parse_settings(values), SPAN, inputs_per_token=4, frames_per_video=frames_per_video)


@MANY
@given(sizes=st.lists(st.integers(1, 4000), min_size=3, max_size=3).map(sorted))
def test_automatic_budgets_are_few_and_rise_to_the_largest_item(sizes: list[int]) -> None:
    smallest, step, largest = sizes
    budgets = automatic_budgets(BudgetRange(smallest, largest, step))
    assert len(budgets) <= MOST_AUTOMATIC_BUDGETS
    assert list(budgets) == sorted(set(budgets))
    assert budgets[-1] == largest
    assert budgets[0] >= smallest


def test_automatic_budgets_pad_an_item_of_several_tiles_by_less_than_half_a_tile_and_a_quarter_of_it_at_most() -> None:
    budgets = automatic_budgets(SPAN)
    for tokens in range(2 * SPAN.step, SPAN.largest + 1):
        padding = min(budget for budget in budgets if budget >= tokens) - tokens
        assert padding < min(SPAN.step / 2, tokens / 4)


def test_automatic_budgets_pad_an_item_of_one_tile_by_less_than_the_smallest_tile() -> None:
    budgets = automatic_budgets(SPAN)
    for tokens in range(SPAN.smallest, SPAN.step + 1):
        assert min(budget for budget in budgets if budget >= tokens) - tokens < SPAN.smallest


def test_each_graph_holds_the_rows_slots_and_items_of_its_budget() -> None:
    assert capacities(encoder_cudagraph_token_budgets=[256, 64], encoder_cudagraph_max_vision_items_per_batch=3) == (
        GraphCapacity(tokens=64, input_rows=256, tiles=1, items=1, frames=0),
        GraphCapacity(tokens=256, input_rows=1024, tiles=4, items=3, frames=0),
    )


def test_frames_default_to_what_as_many_videos_can_have_and_may_be_lowered() -> None:
    budgets = {"encoder_cudagraph_token_budgets": [128], "encoder_cudagraph_max_vision_items_per_batch": 2}
    assert capacities(8, **budgets)[0].frames == 16
    assert capacities(8, **budgets, encoder_cudagraph_max_frames_per_batch=3)[0].frames == 3
    assert capacities(8, **budgets, encoder_cudagraph_max_frames_per_batch=0)[0].frames == 0


def test_budgets_are_sorted_and_given_once() -> None:
    assert parse_settings({"encoder_cudagraph_token_budgets": [256, 64, 256]}).encoder_cudagraph_token_budgets == (
        64,
        256,
    )


@pytest.mark.parametrize("value", [None, {}, "{}", EncoderGraphSettings()])
def test_nothing_given_leaves_everything_automatic(value: object) -> None:
    assert parse_settings(value) == EncoderGraphSettings()  # type: ignore[arg-type]


BUDGETS = "encoder_cudagraph_token_budgets"
ITEMS = "encoder_cudagraph_max_vision_items_per_batch"
FRAMES = "encoder_cudagraph_max_frames_per_batch"

REFUSED = [
    ({BUDGETS: [64, 0]}, [BUDGETS, "holds 0", "at least 1"]),
    ({BUDGETS: [-64]}, [BUDGETS, "holds -64", "at least 1"]),
    ({BUDGETS: []}, [BUDGETS, "0 entries", "1 to 64"]),
    ({BUDGETS: list(range(64, 129))}, [BUDGETS, "65 entries", "1 to 64"]),
    ({BUDGETS: "64,256"}, [BUDGETS, "'64,256'", "a list of whole numbers"]),
    ({BUDGETS: 64}, [BUDGETS, "64", "a list of whole numbers"]),
    ({BUDGETS: [True]}, [BUDGETS, "holds True", "whole numbers"]),
    ({BUDGETS: [64.0]}, [BUDGETS, "holds 64.0", "whole numbers"]),
    ({BUDGETS: ["64"]}, [BUDGETS, "holds '64'", "whole numbers"]),
    ({BUDGETS: [64, None]}, [BUDGETS, "holds None", "whole numbers"]),
    ({BUDGETS: [63]}, [BUDGETS, "holds 63", "from 64 to 22528"]),
    ({BUDGETS: [64, 22529]}, [BUDGETS, "holds 22529", "from 64 to 22528"]),
    ({BUDGETS: [10**30]}, [BUDGETS, "from 64 to 22528"]),
    ({ITEMS: 0}, [ITEMS, "holds 0", "at least 1"]),
    ({ITEMS: True}, [ITEMS, "holds True", "whole numbers"]),
    ({ITEMS: "16"}, [ITEMS, "holds '16'", "whole numbers"]),
    ({ITEMS: 5, BUDGETS: [64, 256]}, [ITEMS, "is 5", "256 tokens", "at most 4 images of 64 tokens"]),
    ({FRAMES: -1}, [FRAMES, "holds -1", "at least 0"]),
    ({FRAMES: 8}, [FRAMES, "is 8", "takes no video", "leave it out"]),
    ({"cudagraph_mm_encoder": 1}, ["cudagraph_mm_encoder is 1", "true or false"]),
    ({"cudagraph_mm_encoder": "yes"}, ["cudagraph_mm_encoder is 'yes'", "true or false"]),
    ({"cudagraph_mode": "FULL"}, ["'cudagraph_mode'", "cudagraph_mm_encoder", BUDGETS, ITEMS, FRAMES]),
    ({3: 4}, ["'3'", BUDGETS]),
]


@pytest.mark.parametrize(("values", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_wrong_value_is_a_configuration_error_that_names_it_and_the_bound(
    values: dict[Any, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        capacities_of(values)
    for word in words:
        assert word in str(caught.value)


def capacities_of(values: dict[Any, Any]) -> tuple[GraphCapacity, ...]:
    return graph_capacities(parse_settings(values), SPAN, inputs_per_token=4, frames_per_video=0)


def test_too_many_frames_for_a_video_model_are_refused_with_the_bound() -> None:
    with pytest.raises(ConfigurationError, match=f"{FRAMES} is 17; 2 videos have at most 16 frames"):
        capacities(8, **{BUDGETS: [128], ITEMS: 2, FRAMES: 17})


@pytest.mark.parametrize("text", ["", "{", "64", "[64]", "null", '"x"', "{'a': 1}", "[" * 200_000, "{}" * 2])
def test_text_that_is_no_json_object_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"compilation config (is not JSON|is .*give an object)"):
        parse_settings(text)


@MANY
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([BUDGETS, ITEMS, "x"]), inner),
        max_leaves=8,
    )
)
def test_any_json_is_either_accepted_or_a_configuration_error(value: object) -> None:
    for form in (json.dumps(value), value):
        with contextlib.suppress(ConfigurationError):
            assert isinstance(parse_settings(form), EncoderGraphSettings)  # type: ignore[arg-type]

"""Whatever is asked, cancelled, wrong or late, in any mix: every request hears one end, and nothing leaks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foveate
from foveate.engine.request import Finished
from tests.engine.driving import Listener, PickyEncoder, ask, engine_of, is_all_free, on_and_on, show, text


@dataclass(frozen=True)
class Step:
    """Something that a caller does."""

    action: str
    """`ask`, `hear` (wait for an event of a request) or `cancel`."""
    what: int
    """Which conversation, or which request of those so far."""
    tokens: int = 1


STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.just("ask"), st.integers(0, 6), st.integers(1, 30)),
        st.builds(Step, st.sampled_from(["hear", "cancel"]), st.integers(0, 99)),
    ),
    max_size=30,
)
CHOICES = st.fixed_dictionaries(
    {
        "max_running": st.integers(1, 5),
        "prefill_tokens_per_step": st.sampled_from([1, 7, 64, 1000]),
        "cache_megabytes": st.sampled_from([0.7, 1.0, 8.0]),
        "max_overtakes": st.integers(0, 3),
        "images_per_encode": st.integers(1, 3),
        "image_cache_megabytes": st.sampled_from([0, 0.05, 10]),
        "steps_ahead": st.integers(0, 1),
    }
)


@pytest.fixture(scope="module")
def conversations(picture: Callable[[int], np.ndarray], black: np.ndarray) -> list[list[dict]]:
    return [
        text("Hello."),
        text("Tell me of the mountain, the river, the bridge and the road to the sea. " * 4),
        show(picture(1)),
        show(picture(2), picture(1)),
        show(black),
        show(b"not a picture"),
        [{"role": "nobody", "content": "Hi."}],
    ]


@pytest.fixture(scope="module")
def expected(vlm: foveate.VLM, conversations: list[list[dict]]) -> dict[int, tuple[int, ...]]:
    """The tokens of those that have an answer, each asked alone."""
    with engine_of(vlm) as engine:
        return {number: ask(engine, conversations[number], on_and_on(30)).answer().token_ids for number in range(4)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, chosen=CHOICES)
def test_any_program_ends_with_right_answers_and_nothing_left(
    vlm: foveate.VLM,
    conversations: list[list[dict]],
    expected: dict[int, tuple[int, ...]],
    steps: list[Step],
    chosen: dict[str, object],
):
    asked: list[tuple[Step, Listener]] = []
    cancelled: set[int] = set()
    with engine_of(vlm, PickyEncoder(vlm), **chosen) as engine:
        for step in steps:
            if step.action == "ask":
                asked.append((step, ask(engine, conversations[step.what], on_and_on(step.tokens))))
            elif asked:
                index = step.what % len(asked)
                listener = asked[index][1]
                if step.action == "cancel" and listener.request is not None:
                    engine.cancel(listener.request)
                    cancelled.add(index)
                elif listener.end is None:
                    listener.next()
        for index, (step, listener) in enumerate(asked):
            end = listener.wait()
            if isinstance(end, Finished):
                assert end.answer.token_ids == expected[step.what][: step.tokens]
            elif index not in cancelled:
                assert step.what not in expected or "all the caches hold" in str(listener.error())
        assert is_all_free(engine)
        assert all(listener.is_silent() for _, listener in asked)

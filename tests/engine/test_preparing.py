"""Conversations that wait are prepared together, each hears its own result, and a bad one spoils nobody else's."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import foveate
from foveate.engine.preparation import Prepared
from foveate.errors import ClosedError, ImageError, PromptError
from foveate.models.lfm2_vl.pictures import HostPictures
from tests.engine.driving import PATIENCE_S, ask, engine_of, is_all_free, on_and_on, show, text


class CountingPictures(HostPictures):
    """Decodes when it is allowed to, and remembers how many pictures each call had."""

    most_at_once = 3

    def __init__(self, vlm: foveate.VLM) -> None:
        super().__init__(vlm.processor.pictures._settings, vlm.processor.pictures.limits)
        self.calls: list[int] = []
        self.may_go_on = threading.Event()

    def decode(self, sources: Sequence[Any]) -> list[Any]:
        self.calls.append(len(sources))
        assert self.may_go_on.wait(PATIENCE_S)
        return super().decode(sources)


@pytest.fixture
def pictures(vlm: foveate.VLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingPictures]:
    made = CountingPictures(vlm)
    monkeypatch.setattr(vlm.processor, "pictures", made)
    yield made
    made.may_go_on.set()


def wait_for_the_first_call(pictures: CountingPictures) -> None:
    while not pictures.calls:
        threading.Event().wait(0.001)


def test_those_who_wait_share_a_call_and_get_what_they_get_alone(
    vlm: foveate.VLM, pictures: CountingPictures, picture: Any
):
    pictures.may_go_on.set()
    with engine_of(vlm) as engine:
        alone = [ask(engine, show(picture(n)), on_and_on(4)).answer().token_ids for n in range(6)]
    pictures.calls.clear()
    pictures.may_go_on.clear()
    with engine_of(vlm, pixel_threads=1, image_cache_megabytes=0) as engine:
        heard = [ask(engine, show(picture(0)), on_and_on(4))]
        wait_for_the_first_call(pictures)
        heard += [ask(engine, show(picture(n)), on_and_on(4)) for n in range(1, 6)]
        pictures.may_go_on.set()
        assert [each.answer().token_ids for each in heard] == alone
        assert is_all_free(engine)
    assert pictures.calls == [1, 3, 2]


def test_a_bad_picture_or_conversation_in_a_shared_call_is_its_own_senders_alone(
    vlm: foveate.VLM, pictures: CountingPictures, picture: Any
):
    with engine_of(vlm, pixel_threads=1) as engine:
        first = ask(engine, text("Hello."))
        wait_for_the_first_call(pictures)
        good, bad, odd = ask(engine, show(picture(1))), ask(engine, show(b"no picture")), ask(engine, [])
        pictures.may_go_on.set()
        assert isinstance(bad.error(), ImageError)
        assert isinstance(odd.error(), PromptError)
        assert good.answer().image_tokens > 0
        assert first.answer().text is not None
        assert is_all_free(engine)


def test_one_that_was_given_up_meanwhile_is_not_prepared(vlm: foveate.VLM, pictures: CountingPictures, picture: Any):
    with engine_of(vlm, pixel_threads=1) as engine:
        first = ask(engine, show(picture(0)))
        wait_for_the_first_call(pictures)
        given_up, kept = ask(engine, show(picture(1))), ask(engine, show(picture(2)))
        engine.cancel(given_up.request)
        while given_up.request.stage.value != "ended":
            threading.Event().wait(0.001)
        pictures.may_go_on.set()
        assert kept.answer().image_tokens > 0
        assert first.answer().image_tokens > 0
    assert sum(pictures.calls) == 2


def test_closing_ends_those_who_wait_for_their_turn(vlm: foveate.VLM, pictures: CountingPictures, picture: Any):
    engine = engine_of(vlm, pixel_threads=1)
    heard = [ask(engine, show(picture(n))) for n in range(5)]
    wait_for_the_first_call(pictures)
    engine.close()
    pictures.may_go_on.set()
    assert all(isinstance(each.error(), ClosedError) for each in heard)


def test_several_of_one_call_are_yielded_in_order_with_their_errors(vlm: foveate.VLM, picture: Any):
    with engine_of(vlm) as engine:
        made = list(engine._preparation.prepare_each([show(picture(0)), show(b"bad"), text("Hello."), [3]]))
    assert [type(each) for each in made[::2]] == [Prepared, Prepared]
    assert isinstance(made[1], ImageError)
    assert isinstance(made[3], PromptError)
    assert made[0].clock.milliseconds().keys() >= {"identify", "decode_images", "pixels", "prompt"}

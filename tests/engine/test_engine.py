"""Requests come, are answered beside each other as they would be alone, and leave nothing behind."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

import foveate
from foveate.engine.engine import Engine
from foveate.engine.request import Event, Stage, TextPiece
from foveate.errors import ClosedError, ConfigurationError, ImageError, NumbersError, OverloadedError, PromptError
from tests.engine.driving import (
    PATIENCE_S,
    GatedEncoder,
    Listener,
    PickyEncoder,
    ask,
    engine_of,
    is_all_free,
    on_and_on,
    settle,
    show,
    text,
)

Picture = Callable[[int], np.ndarray]

AHEAD = pytest.mark.parametrize("steps_ahead", [0, 1])


@AHEAD
def test_an_answer_is_the_one_that_the_model_gives_when_asked_alone(
    vlm: foveate.VLM, picture: Picture, steps_ahead: int
):
    conversations = [text("Hello."), show(picture(1)), show(picture(2), picture(1)), text("Tell me of the sea.")]
    with engine_of(vlm, steps_ahead=steps_ahead) as engine:
        heard = [ask(engine, each, on_and_on(4 + 3 * index)) for index, each in enumerate(conversations)]
        answers = [each.answer() for each in heard]
    for index, (messages, answer) in enumerate(zip(conversations, answers, strict=True)):
        with engine_of(vlm) as engine:
            alone = ask(engine, messages, on_and_on(4 + 3 * index)).answer()
        assert (answer.token_ids, answer.text) == (alone.token_ids, alone.text)
        assert answer.completion_tokens == 4 + 3 * index


def test_usage_counts_and_times_are_those_of_the_request(vlm: foveate.VLM, picture: Picture):
    with engine_of(vlm) as engine:
        answer = ask(engine, show(picture(1), picture(2)), on_and_on(5)).answer()
        prompt = engine.prepare(show(picture(1), picture(2)))
    assert answer.prompt_tokens == len(prompt.token_ids)
    assert answer.image_tokens == prompt.token_ids.count(vlm.model.config.image_token_id) == 128
    assert answer.completion_tokens == len(answer.token_times_ms) == 5
    assert sorted(answer.token_times_ms) == list(answer.token_times_ms)
    stages = {"identify", "decode_images", "pixels", "prompt", "waiting", "encode", "prefill", "decode"}
    assert answer.stages_ms.keys() == stages


@AHEAD
def test_a_stop_token_ends_an_answer_and_what_was_launched_beyond_it_is_thrown_away(
    vlm: foveate.VLM, steps_ahead: int, monkeypatch: pytest.MonkeyPatch
):
    with engine_of(vlm, steps_ahead=steps_ahead) as engine:
        long = ask(engine, text("Hello."), on_and_on(20)).answer().token_ids
        stop = next(token for token in long[5:] if token not in long[:5])
        monkeypatch.setattr(vlm.model, "config", replace(vlm.model.config, stop_token_ids=(stop,)))
        ends, beside = (
            ask(engine, text("Hello."), foveate.SamplingParams(max_tokens=20)),
            ask(engine, text("Hello."), on_and_on(20)),
        )
        assert ends.answer().token_ids == long[: long.index(stop) + 1]
        assert ends.answer().finish_reason == "stop"
        assert beside.answer().token_ids == long
        assert is_all_free(engine)
        assert ends.is_silent()


def test_a_stop_text_that_begins_in_one_token_and_ends_in_another_is_cut_off(vlm: foveate.VLM):
    with engine_of(vlm, steps_ahead=1) as engine:
        whole = ask(engine, text("Hello."), on_and_on(30))
        pieces = [event.text for event in iter_pieces(whole)]
        index = next(i for i in range(3, len(pieces) - 1) if len(pieces[i]) > 1 and pieces[i + 1])
        stop = pieces[index][-1] + pieces[index + 1][:1]
        first = "".join(pieces).index(stop)
        answer = ask(engine, text("Hello."), on_and_on(30, stop=stop)).answer()
    assert answer.text == "".join(pieces)[:first]
    assert answer.finish_reason == "stop"


def iter_pieces(listener: Listener) -> list[TextPiece]:
    listener.answer()
    return [event for event in listener.events if isinstance(event, TextPiece)]


def test_the_same_seed_gives_the_same_tokens_in_any_company(vlm: foveate.VLM, picture: Picture):
    """Company that is greedy, that draws, that filters, and that has penalties."""
    params = on_and_on(16, temperature=1.0, seed=5)
    with engine_of(vlm) as engine:
        alone = ask(engine, show(picture(1)), params).answer().token_ids
        company = [
            ask(engine, text(f"Company {index}"), on_and_on(20, **each))
            for index, each in enumerate([{}, {"temperature": 2.0}, {"temperature": 1.0, "top_p": 0.5, "top_k": 9}])
        ]
        company.append(ask(engine, text("More"), on_and_on(20, frequency_penalty=2.0)))
        beside = ask(engine, show(picture(1)), params).answer().token_ids
        other = ask(engine, show(picture(1)), on_and_on(16, temperature=1.0, seed=6)).answer().token_ids
        assert all(each.answer().completion_tokens == 20 for each in company)
    assert alone == beside
    assert other != alone


def test_a_frequency_penalty_lets_no_token_come_back_soon(vlm: foveate.VLM):
    """The penalty is larger than any difference of two scores of this model would be after a while."""
    with engine_of(vlm) as engine:
        plain = ask(engine, text("Hello."), on_and_on(40)).answer().token_ids
        varied = ask(engine, text("Hello."), on_and_on(40, frequency_penalty=2.0, presence_penalty=2.0)).answer()
    assert len(set(varied.token_ids)) > len(set(plain))


def test_pictures_of_several_requests_share_a_call_of_the_encoder(vlm: foveate.VLM, picture: Picture):
    encoder = GatedEncoder(vlm)
    with engine_of(vlm, encoder) as engine:
        first = ask(engine, show(picture(0)))
        assert encoder.entered.wait(PATIENCE_S)
        prepared = [engine.prepare(show(picture(number))) for number in (1, 2, 2, 3)]
        others = [ask(engine, each) for each in prepared]
        encoder.may_go_on.set()
        assert [each.answer().image_tokens for each in (first, *others)] == [64] * 5
    assert encoder.calls == [1, 3]


def test_a_picture_that_was_shown_before_is_not_encoded_again(vlm: foveate.VLM, picture: Picture):
    encoder = PickyEncoder(vlm)
    with engine_of(vlm, encoder) as engine:
        first = ask(engine, show(picture(1))).answer()
        again = ask(engine, show(picture(1))).answer()
        both = ask(engine, show(picture(2), picture(1))).answer()
        assert encoder.calls == [1, 1]
        assert (engine.stats.image_cache_hits, engine.stats.image_cache_misses) == (2, 2)
    assert again.token_ids == first.token_ids
    assert (again.encoder.mode, again.encoder.real_tokens, again.encoder.cached_tokens) == ("cache", 0, 64)
    assert (both.encoder.mode, both.encoder.real_tokens, both.encoder.cached_tokens) == ("eager", 64, 64)
    with engine_of(vlm, image_cache_megabytes=0) as engine:
        assert ask(engine, show(picture(2), picture(1))).answer().token_ids == both.token_ids
        assert engine.stats.image_cache_misses == 0


# Faults


def test_a_picture_that_cannot_be_used_harms_nobody_else(vlm: foveate.VLM, picture: Picture):
    with engine_of(vlm) as engine:
        good, bad, other = (ask(engine, show(each)) for each in (picture(1), b"not a picture", picture(2)))
        assert isinstance(bad.error(), ImageError)
        assert good.answer().completion_tokens == other.answer().completion_tokens == 8
        assert is_all_free(engine)


def test_a_conversation_that_is_none_is_an_error_of_its_own(vlm: foveate.VLM):
    with engine_of(vlm) as engine:
        assert isinstance(ask(engine, [{"role": "nobody", "content": "Hi."}]).error(), PromptError)
        assert is_all_free(engine)


def test_an_encoder_that_raises_ends_only_the_request_whose_picture_it_was(
    vlm: foveate.VLM, picture: Picture, black: np.ndarray
):
    gate, encoder = GatedEncoder(vlm), PickyEncoder(vlm)
    with engine_of(vlm, gate) as engine:
        expected = [ask(engine, show(picture(number))) for number in (1, 2)]
        gate.may_go_on.set()
        expected_ids = [each.answer().token_ids for each in expected]
    with engine_of(vlm, encoder, max_running=3) as engine:
        blocker = threading.Event()
        engine._worker.inbox.put(lambda: blocker.wait(PATIENCE_S) and None)
        prepared = [engine.prepare(show(each)) for each in (picture(1), black, picture(2))]
        one, bad, other = (ask(engine, each) for each in prepared)
        blocker.set()
        assert str(bad.error()) == "a black picture"
        assert [each.answer().token_ids for each in (one, other)] == expected_ids
        assert encoder.calls == [3, 1, 1, 1]
        assert is_all_free(engine)


@AHEAD
def test_a_prefill_that_fails_ends_only_the_request_that_fails_alone(
    vlm: foveate.VLM, monkeypatch: pytest.MonkeyPatch, steps_ahead: int
):
    """A token that no embedding has makes the step fail for all who are in it, whatever has been written by then."""
    with engine_of(vlm, steps_ahead=steps_ahead, prefill_tokens_per_step=60) as engine:
        expected = [ask(engine, text(words)).answer().token_ids for words in ("Hello.", "Good evening to you.")]
        blocker = threading.Event()
        engine._worker.inbox.put(lambda: blocker.wait(PATIENCE_S) and None)
        prepared = [engine.prepare(text(words)) for words in ("Hello.", "Bad.", "Good evening to you.")]
        forward = type(vlm.model.language).forward
        poisoned = vlm.model.language.embedding(torch.tensor(prepared[1].token_ids))

        def fail_late(self: object, embeddings: torch.Tensor, *rest: object) -> torch.Tensor:
            hidden = forward(self, embeddings, *rest)
            if any(torch.equal(embeddings[at : at + len(poisoned)], poisoned) for at in range(len(embeddings))):
                raise RuntimeError("no room for this prompt")
            return hidden

        monkeypatch.setattr(type(vlm.model.language), "forward", fail_late)
        one, bad, other = (ask(engine, each) for each in prepared)
        blocker.set()
        assert str(bad.error()) == "no room for this prompt"
        assert [each.answer().token_ids for each in (one, other)] == expected
        assert is_all_free(engine)


def test_a_decode_step_that_fails_ends_those_in_it_and_the_next_are_answered(
    vlm: foveate.VLM, monkeypatch: pytest.MonkeyPatch
):
    forward, calls = type(vlm.model.language).forward, []

    def fail_once(self: object, *arguments: object) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("once")
        return forward(self, *arguments)

    with engine_of(vlm, steps_ahead=1) as engine:
        expected = ask(engine, text("Hello.")).answer().token_ids
        monkeypatch.setattr(type(vlm.model.language), "forward", fail_once)
        failed = ask(engine, text("Hello."))
        assert str(failed.error()) == "once"
        assert sum(isinstance(event, TextPiece) for event in failed.events) == 3
        assert ask(engine, text("Hello.")).answer().token_ids == expected
        assert is_all_free(engine)


def test_scores_that_are_no_numbers_end_only_the_request_that_has_them(vlm: foveate.VLM, picture: Picture):
    """Features of NaN spoil one prompt; its company goes on."""

    class Spoiling(PickyEncoder):
        def encode(self, batch, most_ms=None):
            encoded = super().encode(batch, most_ms)
            encoded.features[0].fill_(torch.nan)
            return encoded

    with engine_of(vlm) as engine:
        expected = ask(engine, text("Hello."), on_and_on(12)).answer().token_ids
    with engine_of(vlm, Spoiling(vlm)) as engine:
        good, bad = ask(engine, text("Hello."), on_and_on(12)), ask(engine, show(picture(1)))
        assert isinstance(bad.error(), NumbersError)
        assert good.answer().token_ids == expected
        # The pages that held NaN are used again.
        assert all(ask(engine, text("Hello."), on_and_on(12)).answer().token_ids == expected for _ in range(3))
        assert is_all_free(engine)


def test_replays_of_the_encoder_are_bounded_while_others_are_answered(vlm: foveate.VLM, picture: Picture):
    encoder = GatedEncoder(vlm)
    encoder.may_go_on.set()
    with engine_of(vlm, encoder, encoder_replay_ms=3.5) as engine:
        ask(engine, show(picture(1)), on_and_on(2)).answer()
        long = ask(engine, text("Hello."), on_and_on(400))
        assert isinstance(long.next(), TextPiece)
        ask(engine, show(picture(2)), on_and_on(2)).answer()
        long.answer()
        ask(engine, show(picture(3)), on_and_on(2)).answer()
    assert encoder.bounds == [None, 3.5, None]


def test_a_listener_that_raises_harms_nobody_else(vlm: foveate.VLM):
    def gone(_: Event) -> None:
        raise RuntimeError("the event loop is closed")

    with engine_of(vlm) as engine:
        engine.submit(text("Hello."), on_and_on(8), gone)
        assert ask(engine, text("Hello.")).answer().completion_tokens == 8
        assert is_all_free(engine)


# Bounds


def test_a_request_that_can_never_fit_is_refused_at_once_with_the_bound(vlm: foveate.VLM):
    with engine_of(vlm, cache_megabytes=0.6) as engine:
        room = engine.stats.pages * engine.stats.page_tokens
        told = rf"max_tokens is {room}; together they may be at most {room}, .*cache_megabytes"
        assert engine.stats.pages > 0
        prepared = engine.prepare(text("Hello."))
        with pytest.raises(PromptError, match=told):
            engine.submit(prepared, on_and_on(room), Listener())
        with pytest.raises(PromptError, match=told):
            raise ask(engine, text("Hello."), on_and_on(room)).error()
        fits = on_and_on(room - len(prepared.token_ids))
        assert ask(engine, text("Hello."), fits).answer().completion_tokens == fits.max_tokens
        assert is_all_free(engine)


def test_caches_without_room_for_a_page_are_refused(vlm: foveate.VLM):
    with pytest.raises(ConfigurationError, match="not room for one: set cache_megabytes"):
        engine_of(vlm, cache_megabytes=0.01)


def test_no_more_requests_wait_than_max_waiting(vlm: foveate.VLM, picture: Picture):
    encoder = GatedEncoder(vlm)
    with engine_of(vlm, encoder, max_running=1, max_waiting=2) as engine:
        running = ask(engine, show(picture(1)))
        assert encoder.entered.wait(PATIENCE_S)
        waiting = [ask(engine, text("Hello.")) for _ in range(2)]
        with pytest.raises(OverloadedError, match="2 requests are waiting, and max_waiting is 2"):
            ask(engine, text("Hello."))
        unbounded = ask(engine, text("Hello."), is_bounded=False)
        encoder.may_go_on.set()
        assert all(each.answer().completion_tokens == 8 for each in (running, *waiting, unbounded))
        settle(engine)
        assert ask(engine, text("Hello.")).answer().completion_tokens == 8


# Cancelling and closing


def test_a_request_can_be_cancelled_at_every_stage_and_leaves_nothing(vlm: foveate.VLM, picture: Picture):
    encoder = GatedEncoder(vlm)
    with engine_of(vlm, encoder, max_running=2, pixel_threads=1, prefill_tokens_per_step=1) as engine:
        busy, begin = threading.Event(), threading.Event()
        engine._threads.submit(lambda: (begin.set(), busy.wait(PATIENCE_S)))
        assert begin.wait(PATIENCE_S)
        preparing = ask(engine, show(picture(1)))
        engine.cancel(preparing.request)
        assert preparing.is_cancelled()
        busy.set()

        encoding = ask(engine, show(picture(2)))
        assert encoder.entered.wait(PATIENCE_S)
        engine.cancel(encoding.request)
        waiting = ask(engine, engine.prepare(text("Hello.")))
        engine.cancel(waiting.request)
        encoder.may_go_on.set()
        assert encoding.is_cancelled()
        assert waiting.is_cancelled()

        decoding = Listener()
        prefilling: list[Listener] = []

        def on_token(event: Event) -> None:
            """Hear a token of the one that decodes; a prompt of 64 and more tokens is in the middle of its chunks."""
            decoding(event)
            for each in prefilling:
                if each.request is not None and each.request.stage is Stage.PREFILLING:
                    engine.cancel(each.request)

        decoding.request = engine.submit(text("Hello."), on_and_on(10_000), on_token)
        assert isinstance(decoding.next(), TextPiece)
        prefilling.append(ask(engine, show(picture(3))))
        assert prefilling[0].is_cancelled()
        assert prefilling[0].events[:-1] == []
        engine.cancel(decoding.request)
        assert decoding.is_cancelled()

        done = ask(engine, text("Hello."))
        assert done.answer().completion_tokens == 8
        engine.cancel(done.request)
        assert is_all_free(engine)
        assert all(each.is_silent() for each in (preparing, encoding, waiting, *prefilling, decoding, done))


def test_closing_ends_every_request_and_every_thread(vlm: foveate.VLM, picture: Picture):
    encoder = GatedEncoder(vlm)
    engine = engine_of(vlm, encoder, max_running=2, pixel_threads=1)
    decoding = ask(engine, text("Hello."), on_and_on(10_000))
    assert isinstance(decoding.next(), TextPiece)
    heard = [ask(engine, show(picture(number))) for number in range(6)]
    assert encoder.entered.wait(PATIENCE_S)
    closing = threading.Thread(target=engine.close)
    closing.start()
    encoder.may_go_on.set()
    closing.join(PATIENCE_S)
    assert not engine._thread.is_alive()
    for each in (decoding, *heard):
        assert isinstance(each.error(), ClosedError)
        assert each.is_silent()
    with pytest.raises(ClosedError, match="the engine is closed"):
        ask(engine, text("Hello."))
    engine.close()
    pool = engine._memory.pool
    assert (pool.num_free_pages, pool.num_free_slots) == (pool.num_pages, pool.num_slots)


def test_an_engine_that_fails_as_a_whole_tells_everyone_and_takes_no_more(
    vlm: foveate.VLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    engine = engine_of(vlm, pixel_threads=1)  # so that the first is prepared first: the pages are enough for one
    heard = [ask(engine, text("Hello."), on_and_on(10_000)) for _ in range(2)]
    assert isinstance(heard[0].next(), TextPiece)

    def broken() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(engine._scheduler, "admit", broken)
    for each in heard:
        assert "a defect" in str(each.error())
    engine._thread.join(PATIENCE_S)
    with pytest.raises(ClosedError, match="has failed"):
        ask(engine, text("Hello."))
    assert "the engine has failed" in caplog.text
    engine.close()


def test_listeners_that_end_the_thread_harm_nobody_else(vlm: foveate.VLM):
    """SystemExit is no Exception, and a listener may raise it."""

    def gone(_: Event) -> None:
        raise SystemExit(1)

    with engine_of(vlm) as engine:
        for _ in range(2):
            engine.submit(text("Hello."), on_and_on(8), gone)
        heard = [ask(engine, text(f"Hello {number}."), on_and_on(8)) for number in range(4)]
        assert all(each.answer().completion_tokens == 8 for each in heard)
        settle(engine)
        assert is_all_free(engine)


def test_closing_does_not_wait_for_a_listener_that_wants_the_model(vlm: foveate.VLM):
    own = foveate.VLM(vlm.model, vlm.processor)
    begun = threading.Event()

    def curious(_: Event) -> None:
        begun.set()
        assert own.engine

    own.engine.submit(text("Hello."), on_and_on(5_000), curious)
    assert begun.wait(PATIENCE_S)
    start = time.monotonic()
    own.close()
    assert time.monotonic() - start < PATIENCE_S / 4


def test_parameters_that_are_none_are_refused_at_once(vlm: foveate.VLM):
    with engine_of(vlm) as engine, pytest.raises(ConfigurationError, match="params is None"):
        engine.submit(text("Hello."), None, print)


def test_many_threads_may_ask_one_model(vlm: foveate.VLM, picture: Picture):
    with foveate.VLM(vlm.model, vlm.processor, settings=foveate.EngineSettings(max_running=3)) as own:
        conversations = [show(picture(n % 4)) if n % 2 else text(f"Hello {n % 6}.") for n in range(16)]
        alone = [own.chat(each, on_and_on(6)).token_ids for each in conversations]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda each: own.chat(each, on_and_on(6)).token_ids, conversations))
        assert answers == alone
        assert is_all_free(own.engine)


def test_an_engine_that_nobody_holds_ends_its_thread(vlm: foveate.VLM):
    engine: Engine | None = engine_of(vlm)
    assert engine is not None
    assert ask(engine, text("Hello.")).answer().completion_tokens == 8
    thread = engine._thread
    del engine
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_closed_model_says_so(vlm: foveate.VLM):
    with foveate.VLM(vlm.model, vlm.processor) as own:
        assert own.chat(text("Hello."), on_and_on(3)).completion_tokens == 3
    with pytest.raises(ClosedError, match="has been closed"):
        own.chat(text("Hello."))

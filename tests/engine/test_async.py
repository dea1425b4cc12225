"""The face for servers: pieces as they come, and no request that outlives whoever asked."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import foveate
from foveate.engine.asynchronous import AsyncAnswer
from foveate.engine.engine import Engine
from foveate.errors import CancelledError, ImageError, UnfinishedError
from tests.engine.driving import PATIENCE_S, GatedEncoder, ask, engine_of, is_all_free, on_and_on, show, text


@pytest.fixture
def engine(vlm: foveate.VLM) -> Iterator[Engine]:
    with engine_of(vlm, max_running=3) as made:
        yield made


def run(body: Callable[[], object]) -> object:
    return asyncio.run(asyncio.wait_for(body(), PATIENCE_S))


def test_pieces_joined_are_the_answer(engine: Engine):
    async def body() -> tuple[list[str], foveate.Answer]:
        stream = AsyncAnswer(engine, text("Hello."), on_and_on(12))
        with pytest.raises(UnfinishedError):
            _ = stream.answer
        return [piece async for piece in stream], stream.answer

    pieces, answer = run(body)
    assert "".join(pieces) == answer.text == ask(engine, text("Hello."), on_and_on(12)).answer().text
    assert len(pieces) > 3
    assert all(pieces)


def test_many_tasks_are_answered_beside_each_other(engine: Engine):
    async def body() -> list[foveate.Answer]:
        streams = [AsyncAnswer(engine, text(f"Hello {number}."), on_and_on(6)) for number in range(12)]
        return await asyncio.gather(*(stream.whole() for stream in streams))

    answers = run(body)
    alone = [ask(engine, text(f"Hello {number}."), on_and_on(6)).answer() for number in range(12)]
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in alone]


def test_a_fault_comes_out_of_the_iteration(engine: Engine):
    async def body() -> None:
        await AsyncAnswer(engine, show(b"not a picture"), on_and_on(6)).whole()

    with pytest.raises(ImageError):
        run(body)
    assert is_all_free(engine)


def test_whoever_reads_on_after_the_end_hears_it_again(engine: Engine):
    async def body() -> None:
        faulty = AsyncAnswer(engine, show(b"not a picture"), on_and_on(6))
        for _ in range(3):
            with pytest.raises(ImageError):
                await asyncio.wait_for(faulty.whole(), PATIENCE_S)
        left = AsyncAnswer(engine, text("Hello."), on_and_on(10_000))
        pieces = left.__aiter__()
        await anext(pieces)
        await pieces.aclose()
        for _ in range(3):
            with pytest.raises(CancelledError):
                await asyncio.wait_for(left.whole(), PATIENCE_S)
        good = AsyncAnswer(engine, text("Hello."), on_and_on(6))
        assert await good.whole() is await good.whole()

    run(body)
    assert is_all_free(engine)


def test_a_second_reader_beside_the_first_is_refused(engine: Engine):
    async def body() -> None:
        answer = AsyncAnswer(engine, text("Hello."), on_and_on(300))
        first = asyncio.create_task(answer.whole())
        await asyncio.sleep(0)
        with pytest.raises(UnfinishedError, match="read by somebody else"):
            await answer.whole()
        assert (await first).completion_tokens == 300

    run(body)
    assert is_all_free(engine)


def test_a_task_that_is_cancelled_cancels_its_request(engine: Engine):
    async def body() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in AsyncAnswer(engine, text("Hello."), on_and_on(10_000)):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)
    assert is_all_free(engine)


def test_a_task_that_is_cancelled_before_the_first_piece_cancels_its_request(
    vlm: foveate.VLM, picture: Callable[[int], np.ndarray]
):
    encoder = GatedEncoder(vlm)
    with engine_of(vlm, encoder) as engine:

        async def body() -> None:
            task = asyncio.create_task(AsyncAnswer(engine, show(picture(1)), on_and_on(10_000)).whole())
            await asyncio.to_thread(encoder.entered.wait, PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            encoder.may_go_on.set()

        run(body)
        assert is_all_free(engine)


def test_the_end_of_a_block_cancels_what_was_not_read(engine: Engine):
    async def body() -> None:
        async with AsyncAnswer(engine, text("Hello."), on_and_on(10_000)) as stream:
            async for _ in stream:
                break

    run(body)
    assert is_all_free(engine)


def test_one_that_is_cancelled_by_another_thread_says_so(engine: Engine):
    async def body() -> None:
        stream = AsyncAnswer(engine, text("Hello."), on_and_on(10_000))
        async for _ in stream:
            threading.Thread(target=stream.cancel).start()

    with pytest.raises(CancelledError):
        run(body)
    assert is_all_free(engine)


def test_a_loop_that_has_gone_harms_nobody(engine: Engine):
    """The request goes on for a moment, finds nobody to tell, and is given up."""

    async def body() -> None:
        AsyncAnswer(engine, prepared, on_and_on(10_000))

    prepared = engine.prepare(text("Hello."))
    run(body)
    assert ask(engine, prepared).answer().completion_tokens == 8
    assert is_all_free(engine)

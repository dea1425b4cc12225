"""The engine for servers: an answer as an asynchronous iterator over pieces of text."""

import asyncio
from collections.abc import AsyncIterator

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.engine import Engine, Messages
from foveate.engine.preparation import Prepared
from foveate.engine.request import Cancelled, Event, Failed, Finished, TextPiece
from foveate.errors import CancelledError, UnfinishedError


class AsyncAnswer:
    """One answer, under way since this was made. Iterate once to get its pieces of text, which may be none.

    The request is cancelled when the task that iterates is cancelled or stops, and at the end of `async with`. Whoever
    reads on after its end hears the same end again; a second reader beside the first gets UnfinishedError.
    """

    def __init__(self, engine: Engine, conversation: Messages | Prepared, params: SamplingParams) -> None:
        """Hand the conversation in; must be made within a running event loop. Raises what `Engine.submit` raises."""
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._engine = engine
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._is_being_read = False

        def sink(event: Event) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._request = engine.submit(conversation, params, sink)

    def cancel(self) -> None:
        """Give the answer up; too late is no error."""
        self._engine.cancel(self._request)

    async def __aenter__(self) -> "AsyncAnswer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    async def __aiter__(self) -> AsyncIterator[str]:
        if self._is_being_read:
            raise UnfinishedError("this answer is being read by somebody else; read it once, and hand its text on")
        self._is_being_read = True
        try:
            while self._answer is None and self._error is None:
                event = await self._events.get()
                if isinstance(event, TextPiece):
                    if event.text:
                        yield event.text
                elif isinstance(event, Finished):
                    self._answer = event.answer
                elif isinstance(event, Failed):
                    self._error = event.error
                elif isinstance(event, Cancelled):
                    self._error = CancelledError("this answer was cancelled")
            if self._error is not None:
                raise self._error
        finally:
            self._is_being_read = False
            self.cancel()

    @property
    def answer(self) -> Answer:
        """The whole answer, once its pieces have been read."""
        if self._answer is None:
            raise UnfinishedError("this answer has no end yet: read its pieces first")
        return self._answer

    async def whole(self) -> Answer:
        """Wait for the whole answer."""
        async for _ in self:
            pass
        return self.answer

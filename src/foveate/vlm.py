"""The vision-language model as people use it: pictures and questions in, answers out."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.decoder import Progress
from foveate.engine.encoding import EagerImageEncoder, ImageFeatureEncoder
from foveate.engine.engine import Engine
from foveate.engine.generation import Generation
from foveate.engine.settings import EngineSettings
from foveate.errors import ClosedError, ConfigurationError, FoveateError, PromptError
from foveate.images import ImageSource
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor

Message = dict[str, Any]
Conversation = Sequence[Message]
"""Messages `{"role": …, "content": …}`; the content is a text, or a list of `{"type": "text", "text": …}` and
`{"type": "image", "image": path, bytes, PIL image or uint8 array}` in the order in which they are to be read."""

DEFAULT_PROMPT = "Describe this picture."


class AnswerStream:
    """An answer as it comes: iterate to get its pieces of text, which are never half a character."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._pieces = iter(generation)
        self._answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if piece.text:
                yield piece.text

    @property
    def answer(self) -> Answer:
        """The whole answer; runs the rest of it if the pieces were not all read."""
        for _ in self._pieces:
            pass
        if self._answer is None:
            self._answer = self._generation.answers()[0]
        return self._answer


class VLM:
    """A loaded model; `foveate.load` makes it.

    Its engine starts with the first question, or with `engine`, and ends with `close`, at the end of a `with` block,
    when nobody holds the model any more, or with the process. Several threads may ask at the same time.
    """

    def __init__(
        self,
        model: Lfm2VlModel,
        processor: Processor,
        encoder: ImageFeatureEncoder | None = None,
        *,
        settings: EngineSettings | None = None,
    ) -> None:
        self.model = model
        self.processor = processor
        self.encoder = encoder or EagerImageEncoder(model.encoder)
        self.settings = settings or EngineSettings()
        self._engine: Engine | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def engine(self) -> Engine:
        """The engine that answers; started when it is first asked for. Raises ClosedError after `close`."""
        return self.start_engine()

    def start_engine(self, progress: Progress | None = None) -> Engine:
        """Start the engine if it does not run yet: allocate its caches, and on CUDA capture its decode steps.

        `progress` is called with the number of steps recorded so far and in all.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("this model has been closed; load it again")
            if self._engine is None:
                self._engine = Engine(self.model, self.processor, self.encoder, self.settings, progress=progress)
            return self._engine

    def close(self) -> None:
        """End the engine and its threads; answers under way end with ClosedError. May be repeated."""
        with self._lock:
            self._is_closed = True
            engine = self._engine
        if engine is not None:  # not under the lock: it waits for the engine's thread, on which somebody may want it
            engine.close()

    def __enter__(self) -> "VLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(
        self, *pictures: ImageSource, prompt: str = DEFAULT_PROMPT, sampling: SamplingParams | None = None
    ) -> Answer:
        """Answer `prompt` about one or more pictures.

        Raises ImageError on a picture that cannot be used and PromptError on a prompt that is too long.
        """
        return self.chat([question(pictures, prompt)], sampling)

    def chat(self, messages: Conversation, sampling: SamplingParams | None = None) -> Answer:
        """Answer a conversation of any number of turns and pictures."""
        return self.stream(messages, sampling).answer

    def stream(self, messages: Conversation, sampling: SamplingParams | None = None) -> AnswerStream:
        """Like `chat`, but the answer comes in pieces. Pictures and prompt are checked before this returns."""
        params = _one_each(sampling, 1)
        return AnswerStream(Generation(self.engine, [self.engine.prepare(messages)], params))

    def generate(
        self, conversations: Sequence[Conversation], sampling: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Answer]:
        """Answer several conversations in one batch; each answer is the one it would get alone.

        `sampling` is one for all or one for each. Low-precision types may round differently by batch size.
        """
        if isinstance(conversations, list | tuple) and not conversations:
            return []
        generation = self.start(conversations, sampling)
        for _ in generation:
            pass
        return generation.answers()

    def start(
        self, conversations: Sequence[Conversation], sampling: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> Generation:
        """Check and prepare several conversations; iterating the result generates their answers together.

        An ImageError or PromptError carries a note with the index of the conversation that it is about.
        """
        if not isinstance(conversations, list | tuple):
            raise PromptError(f"conversations are a {type(conversations).__name__}; give a list of conversations")
        params = _one_each(sampling, len(conversations))
        prepared = []
        for index, messages in enumerate(conversations):
            try:
                prepared.append(self.engine.prepare(messages))
            except FoveateError as error:
                error.add_note(f"in conversation {index} of {len(conversations)}, counted from 0")
                raise
        return Generation(self.engine, prepared, params, keeps_first_logits=True)


def question(pictures: Sequence[ImageSource], prompt: str) -> Message:
    """Return a user's message that shows `pictures` and then asks `prompt`."""
    images = [{"type": "image", "image": picture} for picture in pictures]
    return {"role": "user", "content": [*images, {"type": "text", "text": prompt}]}


def _one_each(sampling: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if sampling is None or isinstance(sampling, SamplingParams):
        return [sampling or SamplingParams()] * count
    if not isinstance(sampling, list | tuple) or not all(isinstance(each, SamplingParams) for each in sampling):
        raise ConfigurationError(f"sampling is {sampling!r:.80}; give SamplingParams, or a list of them")
    if len(sampling) != count:
        raise ConfigurationError(f"sampling has {len(sampling)} entries for {count} conversations; give 1 or {count}")
    return list(sampling)

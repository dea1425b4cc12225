"""The vision-language model as people use it: pictures and questions in, answers out."""

from collections.abc import Iterator, Sequence
from typing import Any

from foveate.config import SamplingParams
from foveate.engine.answer import Answer
from foveate.engine.clock import StageClock
from foveate.engine.encoding import EagerImageEncoder, ImageFeatureEncoder
from foveate.engine.generation import Generation
from foveate.errors import ConfigurationError, FoveateError, PromptError
from foveate.images import ImageSource
from foveate.models.lfm2_vl.model import Lfm2VlModel
from foveate.models.lfm2_vl.processing import Processor, Prompt

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
    """A loaded model; `foveate.load` makes it."""

    def __init__(self, model: Lfm2VlModel, processor: Processor, encoder: ImageFeatureEncoder | None = None) -> None:
        self.model = model
        self.processor = processor
        self.encoder = encoder or EagerImageEncoder(model.encoder)

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
        clock = StageClock(self.model.device)
        return AnswerStream(self._generation([self._prompt(messages, clock)], params, clock))

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
        clock = StageClock(self.model.device)
        prompts = []
        for index, messages in enumerate(conversations):
            try:
                prompts.append(self._prompt(messages, clock))
            except FoveateError as error:
                error.add_note(f"in conversation {index} of {len(conversations)}, counted from 0")
                raise
        return self._generation(prompts, params, clock)

    def _generation(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams], clock: StageClock) -> Generation:
        return Generation(self.model, self.processor, self.encoder, prompts, params, clock)

    def _prompt(self, messages: Conversation, clock: StageClock) -> Prompt:
        if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
            raise PromptError("a conversation is a list of messages {'role': …, 'content': …}; see also describe()")
        with clock.device("decode_images"):
            images = self.processor.load_images(messages)
        with clock.device("pixels"):
            patches = self.processor.patches(images)
        with clock.host("prompt"):
            return self.processor.encode(messages, patches)


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

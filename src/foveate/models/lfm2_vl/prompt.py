"""A conversation → token ids, with a run of placeholders for every picture.

The chat template is the checkpoint's own. Text that comes from a user never turns into a special token (see
`special_text`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from foveate.errors import CheckpointError, PromptError
from foveate.models.lfm2_vl.image_settings import ImageSettings
from foveate.models.lfm2_vl.special_text import SpecialText, mended
from foveate.models.lfm2_vl.tiles import TileGrid

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class ImageTokens:
    """Ids of the tokens around a picture."""

    placeholder: int
    start: int
    end: int
    thumbnail: int


class PromptEncoder:
    """Turns conversations into token ids; safe to use from several threads."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, settings: ImageSettings, image_token_id: int) -> None:
        self.tokenizer = tokenizer
        self._settings = settings
        self._image_text = tokenizer.convert_ids_to_tokens(image_token_id)
        if not isinstance(self._image_text, str):
            raise CheckpointError(f"the tokenizer has no token with the image token's id {image_token_id}")
        stated = getattr(tokenizer, "image_token", None) or self._image_text
        if stated != self._image_text:
            raise CheckpointError(
                f"the image token's id in config.json, {image_token_id}, is {self._image_text!r} to the tokenizer,"
                f" whose image token is {stated!r}; set image_token_id to {tokenizer.convert_tokens_to_ids(stated)}"
            )
        self.image_tokens = self._find_image_tokens(image_token_id)
        specials = {str(token): token for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special_ids = {text: int(tokenizer.convert_tokens_to_ids(text)) for text in (*specials, self._image_text)}
        self._special_text = SpecialText({text: specials.get(text) for text in self._special_ids})
        self._plain = self._plain_tokenizer()

    def encode(self, messages: Sequence[dict[str, Any]], grids: Sequence[TileGrid]) -> list[int]:
        """Return the prompt's token ids, generation prompt included; `grids` are those of the pictures, in order.

        A message is `{"role": …, "content": text or a list of {"type": "text", "text": …} and {"type": "image"}}`.
        Raises PromptError on a conversation that the template refuses, or whose pictures do not match `grids`.
        """
        pieces = self._special_text.split(self._render(messages))
        wanted = pieces.count(self._image_text)
        if wanted != len(grids):
            raise PromptError(f"the prompt has {wanted} image placeholders for {len(grids)} pictures")
        remaining = iter(grids)
        ids: list[int] = []
        for piece in pieces:
            if piece == self._image_text:
                ids.extend(self.image_ids(next(remaining)))
            elif piece in self._special_ids:
                ids.append(self._special_ids[piece])
            else:
                ids.extend(self._plain_ids(mended(piece)))
        return ids

    def _plain_ids(self, text: str) -> list[int]:
        try:
            return list(self._plain.encode(text, add_special_tokens=False).ids)
        except TypeError as error:  # so the tokenizer refuses a lone surrogate, which only a template can write here
            raise PromptError("the checkpoint's chat template writes something that is not text") from error

    def image_ids(self, grid: TileGrid) -> list[int]:
        """Return the markers and placeholders of one picture.

        The placeholders of a tile are counted from the tile that is really made, thumbnail included.
        """
        factor, tokens = self._settings.downsample_factor, self.image_tokens
        tile = [tokens.placeholder] * grid.tile.num_tokens(factor)
        thumbnail = [tokens.placeholder] * grid.thumbnail.num_tokens(factor) if grid.thumbnail else []
        if not self._settings.use_image_special_tokens:
            return tile * (grid.rows * grid.columns) + thumbnail
        ids = [tokens.start]
        if not grid.is_split:
            return [*ids, *tile, tokens.end]
        for row in range(grid.rows):
            for column in range(grid.columns):
                ids += [self._token_id(f"<|img_row_{row + 1}_col_{column + 1}|>"), *tile]
        if thumbnail:
            ids += [tokens.thumbnail, *thumbnail]
        return [*ids, tokens.end]

    def _render(self, messages: Sequence[dict[str, Any]]) -> str:
        if not messages:
            raise PromptError("the conversation is empty; give at least one message")
        try:
            safe = [self._guard(message) for message in messages]
            return str(self.tokenizer.apply_chat_template(safe, tokenize=False, add_generation_prompt=True))
        except PromptError:
            raise
        except Exception as error:  # a template may raise anything, with `raise_exception` or by its own faults
            raise PromptError(f"the checkpoint's chat template refuses the conversation: {error}") from error

    def _guard(self, message: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise PromptError(f"a message is {message!r:.80}; give {{'role': …, 'content': …}}")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise PromptError(f"a message has the role {role!r}; allowed are {', '.join(ROLES)}")
        safe = self._special_text.broken_within({key: value for key, value in message.items() if key != "content"})
        if isinstance(content, str):
            return {**safe, "content": self._special_text.broken([content])[0]}
        if not isinstance(content, list | tuple):
            raise PromptError(f"the content of a message is {type(content).__name__}; give a text or a list of parts")
        texts = iter(self._special_text.broken([part["text"] for part in content if _is_text(part)]))
        parts = [{"type": "text", "text": next(texts)} if _is_text(part) else {"type": "image"} for part in content]
        return {**safe, "content": parts}

    def _plain_tokenizer(self) -> Tokenizer:
        # A copy of its own: the switch below is a state of the tokenizer, which others may use at the same time.
        plain = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        plain.no_padding()
        plain.no_truncation()
        plain.add_special_tokens([str(self._image_text)])
        plain.encode_special_tokens = True
        return plain

    def _find_image_tokens(self, placeholder: int) -> ImageTokens:
        def find(name: str, usual: str) -> int:
            return self._token_id(getattr(self.tokenizer, name, None) or usual)

        return ImageTokens(
            placeholder=placeholder,
            start=find("image_start_token", "<|image_start|>"),
            end=find("image_end_token", "<|image_end|>"),
            thumbnail=find("image_thumbnail_token", "<|img_thumbnail|>"),
        )

    def _token_id(self, text: str) -> int:
        token_id = self.tokenizer.convert_tokens_to_ids(text)
        if not isinstance(token_id, int) or token_id == self.tokenizer.unk_token_id:
            raise CheckpointError(f"the tokenizer has no token {text!r}, which this model needs around pictures")
        return token_id


def _is_text(part: Any) -> bool:
    """Whether a part of a message is a text rather than a picture; raises PromptError when it is neither."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image" or (kind == "text" and isinstance(part.get("text"), str)):
        return bool(kind == "text")
    raise PromptError(
        f"a content part is {part!r:.80}; allowed are {{'type': 'text', 'text': …}} and {{'type': 'image'}}"
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer and chat template of a checkpoint folder; raises CheckpointError when either is missing."""
    if not (folder / "tokenizer_config.json").is_file():
        raise CheckpointError(f"{folder} has no tokenizer_config.json: it is not complete")
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and the tokenizers' bare Exception
        raise CheckpointError(f"the tokenizer in {folder} cannot be loaded: {error}") from error
    if not tokenizer.is_fast:
        raise CheckpointError(f"the tokenizer in {folder} has no tokenizer.json")
    if not tokenizer.chat_template:
        raise CheckpointError(f"{folder} has no chat template (chat_template.jinja or in tokenizer_config.json)")
    if "bos_token" in str(tokenizer.chat_template) and tokenizer.bos_token is None:
        raise CheckpointError(f"{folder / 'tokenizer_config.json'} names no bos_token, which the chat template writes")
    return tokenizer

"""A conversation with pictures → token ids and patches: what the model is run on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveate.errors import CheckpointError, PromptError
from foveate.images import ImageLimits
from foveate.models.lfm2_vl.config import ModelConfig
from foveate.models.lfm2_vl.image_patches import ImagePatches
from foveate.models.lfm2_vl.pictures import HostPictures, Pictures
from foveate.models.lfm2_vl.prompt import PromptEncoder, load_tokenizer


@dataclass(frozen=True)
class Prompt:
    """One conversation, ready for the model."""

    token_ids: list[int]
    """The prompt, with one placeholder for every image token."""
    images: list[ImagePatches]
    """Its pictures, in the order of their placeholders."""


class Processor:
    """Pictures and text in, numbers out; the checkpoint's own rules throughout."""

    def __init__(
        self,
        config: ModelConfig,
        folder: Path,
        limits: ImageLimits | None = None,
        *,
        pictures: Pictures | None = None,
    ) -> None:
        """Read the tokenizer in `folder`. `pictures` decodes and cuts, within limits of its own; by default the CPU
        does, within `limits`.
        """
        self.config = config
        self.pictures = pictures or HostPictures(config.images, limits or ImageLimits())
        tokenizer = load_tokenizer(folder)
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest >= config.language.vocab_size:
            raise CheckpointError(
                f"the tokenizer in {folder} has ids up to {highest}; the model's vocab_size is"
                f" {config.language.vocab_size}: they do not belong together"
            )
        self.prompts = PromptEncoder(tokenizer, config.images, config.image_token_id)

    def load_images(self, messages: Sequence[dict[str, Any]]) -> Sequence[Any]:
        """Return the decoded pictures of a conversation, in order; raises ImageError on one that cannot be used."""
        return self.pictures.decode(image_sources(messages))

    def patches(self, images: Sequence[Any]) -> list[ImagePatches]:
        """Cut decoded pictures into tiles and patches; raises ImageSizeError on one that is too thin."""
        return self.pictures.patches(images)

    def encode(self, messages: Sequence[dict[str, Any]], images: Sequence[ImagePatches]) -> Prompt:
        """Return the prompt of a conversation whose pictures were cut by `patches`."""
        return Prompt(self.prompts.encode(messages, [image.grid for image in images]), list(images))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        text = self.prompts.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)


def image_sources(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the pictures of a conversation as they were given; raises PromptError where a part has none."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list | tuple) for part in content]
    images = [part for part in parts if isinstance(part, dict) and part.get("type") == "image"]
    if not all("image" in part for part in images):
        raise PromptError("an image part has no picture; give {'type': 'image', 'image': path, bytes or picture}")
    return [part["image"] for part in images]

"""One question about one or two pictures, with the answer that is right."""

from dataclasses import dataclass

from PIL import Image

__all__ = ["Example"]


@dataclass(frozen=True, eq=False)
class Example:
    """A visual question. Its answer is known because the pictures were drawn for it."""

    skill: str
    """The name of the skill that it asks for, a key of `foveate.evaluation.skills.SKILLS`."""
    pictures: tuple[Image.Image, ...]
    """One RGB picture, or two for the skill `pairs`, in the order in which the question counts them."""
    question: str
    """Plain English, one sentence."""
    answer: str
    """The short form that `foveate.evaluation.skills` documents; it is never empty."""

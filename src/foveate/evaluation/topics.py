"""Questions about the world, which no drawn picture answers. The two sides share no subject."""

from random import Random
from typing import Final

from foveate.evaluation.phrases import worded
from foveate.evaluation.splits import Split

__all__ = ["SUBJECTS", "WORDINGS", "world_question"]

WORDINGS: Final = {
    "animal": (
        "What is the name of this {subject}?",
        "How old is the {subject}?",
        "What is the {subject} doing?",
        "What does this {subject} like to eat?",
        "Is the {subject} hungry?",
    ),
    "person": (
        "Who is this {subject}?",
        "How old is the {subject}?",
        "Where does this {subject} live?",
        "What is the {subject} wearing?",
        "What is the {subject} thinking?",
    ),
    "place": (
        "Which country is this {subject} in?",
        "When was this {subject} built?",
        "How far away is the {subject}?",
        "What is the weather like at the {subject}?",
        "Who lives near this {subject}?",
    ),
    "work": (
        "Who made this {subject}?",
        "When was this {subject} made?",
        "Who is the author of this {subject}?",
        "What is this {subject} about?",
        "Is this {subject} famous?",
    ),
    "thing": (
        "How heavy is this {subject}?",
        "What is this {subject} made of?",
        "Where was this {subject} bought?",
        "Who owns this {subject}?",
        "Does the {subject} still work?",
    ),
    "any": ("{subject}",),
}
"""By kind of subject; those of the kind "any" are whole questions."""

SUBJECTS: Final[dict[Split, dict[str, tuple[str, ...]]]] = {
    Split.TRAINING: {
        "animal": ("dog", "horse", "bird", "fish", "sheep", "rabbit", "lion", "elephant", "goat", "monkey", "snake"),
        "person": ("man", "child", "singer", "doctor", "farmer", "teacher", "soldier", "king", "runner", "painter"),
        "place": ("house", "bridge", "castle", "beach", "village", "mountain", "station", "church", "park", "island"),
        "work": ("painting", "song", "film", "poem", "novel", "statue", "play", "dance", "melody", "drawing"),
        "thing": ("car", "bicycle", "chair", "lamp", "clock", "guitar", "knife", "computer", "boat", "coat", "shoe"),
        "any": (
            "What time of day is it?",
            "Who took this picture?",
            "Where was this picture taken?",
            "What happens next?",
            "What music is playing?",
            "Is it raining?",
            "Which season is it?",
            "Who won the match?",
            "How many people are in the room?",
            "What is for dinner?",
            "What does it smell like?",
            "Is the water cold?",
            "Which language do they speak?",
            "What sport is this?",
        ),
    },
    Split.TEST: {
        "animal": ("cat", "cow", "duck", "bear"),
        "person": ("woman", "boy", "driver", "queen"),
        "place": ("tower", "city", "river", "school"),
        "work": ("book", "photograph", "symphony", "sculpture"),
        "thing": ("train", "table", "telephone", "hat"),
        "any": (
            "What is the weather like?",
            "Who painted this?",
            "What day of the week is it?",
            "Are the people happy?",
            "How warm is it?",
            "What game are they playing?",
        ),
    },
}


def world_question(random: Random, split: Split) -> str:
    """Return a question about one of the subjects of a side."""
    subjects = SUBJECTS[split]
    kind = random.choice(sorted(subjects))
    return worded(random, WORDINGS[kind], subject=random.choice(subjects[kind]))

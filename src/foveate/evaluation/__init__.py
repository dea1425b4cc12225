"""Visual questions with known answers, drawn by the same published code for training and for tests.

The two sides share no word, font, photograph, handwritten digit or coloured shape. Drawing needs the packages of the
extra `eval`: pip install 'foveate[eval]'.
"""

from foveate.errors import MissingExtraError
from foveate.evaluation.example import Example
from foveate.evaluation.skills import EVALUATED_SKILLS, SKILLS, VERSION, Draw, draw
from foveate.evaluation.splits import Split

__all__ = ["EVALUATED_SKILLS", "SKILLS", "VERSION", "Draw", "Example", "MissingExtraError", "Split", "draw"]

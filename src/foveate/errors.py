"""Every error Foveate raises on purpose.

    FoveateError
    ├── ConfigurationError     a setting has a wrong name, type or value (also a ValueError)
    ├── CheckpointError        a model folder is missing, incomplete, truncated or of another kind
    ├── ImageError             a picture cannot be used (also a ValueError)
    │   ├── UnreadableImageError   not a picture, or its bytes are damaged or cut off
    │   └── ImageSizeError         its size is beyond a bound: pixels, bytes or image tokens
    ├── PromptError            a conversation cannot be turned into a prompt (also a ValueError)
    ├── DeviceError            the device asked for is not there
    ├── GraphCheckError        a captured graph failed its start-up check, where that is an error
    ├── MissingExtraError      a package of an extra is not installed (also an ImportError)
    ├── OverloadedError        too many requests are waiting already
    ├── CancelledError         an answer was waited for whose request was cancelled
    ├── ClosedError            the engine has been closed, or has failed as a whole
    ├── NumbersError           the model gave scores that are not numbers
    ├── OutputError            what a command prints cannot be written
    └── UnfinishedError        an answer was asked for that was not generated to its end

A message says what was wrong, what was got, the bound, and the setting that changes it. The command line prints
it on one line and exits with code 2; anything that is not a FoveateError is a defect of Foveate and shows its trace.
"""

__all__ = [
    "CancelledError",
    "CheckpointError",
    "ClosedError",
    "ConfigurationError",
    "DeviceError",
    "FoveateError",
    "GraphCheckError",
    "ImageError",
    "ImageSizeError",
    "MissingExtraError",
    "NumbersError",
    "OutputError",
    "OverloadedError",
    "PromptError",
    "UnfinishedError",
    "UnreadableImageError",
]


class FoveateError(Exception):
    """The root of the tree: `except FoveateError` catches whatever the caller can act on."""


class ConfigurationError(FoveateError, ValueError):
    """A setting has an unknown name, a wrong type or a value out of its bound."""


class CheckpointError(FoveateError):
    """A model folder is missing, incomplete, truncated, or holds another kind of model."""


class ImageError(FoveateError, ValueError):
    """A picture cannot be used."""


class UnreadableImageError(ImageError):
    """The bytes are not a picture, or are damaged or cut off."""


class ImageSizeError(ImageError):
    """The picture is beyond a bound: pixels, bytes, or image tokens of one tile."""


class PromptError(FoveateError, ValueError):
    """A conversation cannot be turned into a prompt."""


class DeviceError(FoveateError):
    """The device that was asked for is not there."""


class GraphCheckError(FoveateError):
    """A captured graph failed its start-up check, where that is an error (`strict`)."""


class MissingExtraError(FoveateError, ImportError):
    """A package of an extra is not installed, or is too old to hold what is read from it."""


class OverloadedError(FoveateError):
    """Too many requests are waiting already: ask again later."""


class CancelledError(FoveateError):
    """An answer was waited for whose request was cancelled."""


class ClosedError(FoveateError):
    """The engine has been closed, or has failed as a whole."""


class NumbersError(FoveateError):
    """The model gave scores that are not numbers: damaged weights, or a type too small for them."""


class UnfinishedError(FoveateError):
    """An answer was asked for that was not generated to its end."""


class OutputError(FoveateError):
    """What a command prints cannot be written."""

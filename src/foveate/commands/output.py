"""Standard output: text for people, one line of JSON for programs."""

import json
import sys
from typing import Any

from foveate.errors import OutputError

__all__ = ["write_json", "write_text"]


def write_text(text: str) -> None:
    """Write text and hand it on at once.

    A character that the terminal's encoding lacks becomes a question mark. Raises OutputError when nothing can be
    written, BrokenPipeError when the reader has gone.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed; leave it open or redirect it to a file")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"standard output cannot be written: {error.strerror}; free some space or redirect it"
        ) from error


def write_json(record: dict[str, Any]) -> None:
    """Write one line of JSON, in ASCII so that it reads the same through any terminal. Raises as `write_text` does."""
    write_text(json.dumps(record) + "\n")

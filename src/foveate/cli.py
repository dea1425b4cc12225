"""The `foveate` command. A fault that its user can mend is one line on standard error and exit code 2."""

import errno
import sys

from foveate.errors import FoveateError

_OUTPUT_FAULTS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    0: done; 1: the reader of the output has gone; 2: a fault that the user can mend; 3: a benchmark found wrong
    results; 130: interrupted.
    """
    try:
        # Imported here: it takes seconds, and an interruption meanwhile must be as quiet as any other.
        from foveate.commands.app import app

        return int(app(args=arguments or ["--help"], standalone_mode=False, prog_name="foveate") or 0)
    except FoveateError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, EOFError):
        return 130
    except MemoryError:
        return _complain("there is not enough memory; use a smaller model or picture, or close other programs")
    except SystemExit as left:
        # So typer and rich leave, in silence, when the reader of their output has gone, as `head` does.
        return left.code if isinstance(left.code, int) else 1
    except OSError as error:
        if error.errno not in _OUTPUT_FAULTS:
            raise
        return _complain(f"standard output cannot be written: {error.strerror}; free some space or redirect it")
    except Exception as error:
        return _usage_error(error)


def _usage_error(error: Exception) -> int:
    # typer brings its own copy of click, so its exceptions are told by their names and interface.
    if type(error).__name__ == "Abort":
        return 130
    if type(error).__name__ == "OutOfMemoryError":
        return _complain("the device has not enough memory; use a smaller model or picture, or --device cpu")
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        raise error
    message, context = str(format_message()), getattr(error, "ctx", None)
    return _complain(f"{message.rstrip('.')}; see {context.command_path if context else 'foveate'} --help")


def _complain(message: str) -> int:
    if sys.stderr is not None:
        encoding = sys.stderr.encoding or "utf-8"
        text = f"foveate: {' '.join(message.split())}\n"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding))
        sys.stderr.flush()
    return 2

"""The `foveate` command. A fault that its user can mend is one line on standard error and exit code 2."""

import os
import sys

import typer

from foveate.commands.describe import describe
from foveate.commands.doctor import doctor
from foveate.commands.new_checkpoint import new_checkpoint
from foveate.errors import FoveateError

app = typer.Typer(
    name="foveate",
    help="Serve LFM2-VL, LiquidAI's small vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(describe)
app.command()(doctor)
app.command(name="new-checkpoint")(new_checkpoint)


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 2 for what the user can mend, 130 when interrupted."""
    try:
        return int(app(args=arguments, standalone_mode=False, prog_name="foveate") or 0)
    except FoveateError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, EOFError):
        return 130
    except BrokenPipeError:
        # The reader has gone (as `head` does): nothing is left to say, and Python must not try again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _usage_error(error)


def _usage_error(error: Exception) -> int:
    # typer brings its own copy of click, so its exceptions are told by their interface.
    message = getattr(error, "format_message", None)
    if message is not None:
        return _complain(message() or "no command given; see foveate --help") if error.args else _show_help(error)
    if type(error).__name__ == "Abort":
        return 130
    raise error


def _show_help(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    sys.stderr.write((context.get_help() if context else str(error)) + "\n")
    return 2


def _complain(message: str) -> int:
    sys.stderr.write(f"foveate: {' '.join(message.split())}\n")
    return 2

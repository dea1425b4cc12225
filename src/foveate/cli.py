"""The `foveate` command. A fault that its user can mend is one line on standard error and exit code 2."""

import sys

import typer

from foveate.commands.describe import describe
from foveate.commands.doctor import doctor
from foveate.commands.evaluate import evaluation
from foveate.commands.new_checkpoint import new_checkpoint
from foveate.errors import FoveateError

app = typer.Typer(
    name="foveate",
    help="Serve LFM2-VL, LiquidAI's small vision-language models.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(describe)
app.command()(doctor)
app.command(name="eval")(evaluation)
app.command(name="new-checkpoint")(new_checkpoint)


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    0: done; 1: the reader of the output has gone; 2: a fault that the user can mend; 130: interrupted.
    """
    try:
        return int(app(args=arguments or ["--help"], standalone_mode=False, prog_name="foveate") or 0)
    except FoveateError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, EOFError):
        return 130
    except SystemExit as left:
        # So typer and rich leave, in silence, when the reader of their output has gone, as `head` does.
        return left.code if isinstance(left.code, int) else 1
    except Exception as error:
        return _usage_error(error)


def _usage_error(error: Exception) -> int:
    # typer brings its own copy of click, so its exceptions are told by their names and interface.
    if type(error).__name__ == "Abort":
        return 130
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        raise error
    context = getattr(error, "ctx", None)
    return _complain(f"{format_message().rstrip('.')}; see {context.command_path if context else 'foveate'} --help")


def _complain(message: str) -> int:
    typer.echo(f"foveate: {' '.join(message.split())}", err=True)
    return 2

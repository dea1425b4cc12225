"""Progress bars on standard error, shown only where a person looks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def loading_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs; yields a function that takes the number done and the total."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Not rich's own idea of a terminal: FORCE_COLOR in the environment would put bars into redirected errors.
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_seen) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)

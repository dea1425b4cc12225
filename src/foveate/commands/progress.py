"""Progress bars on standard error, shown only where a person looks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ShowProgress(Protocol):
    """Moves a bar."""

    def __call__(self, done: int, total: int, description: str = ...) -> None:
        """Show that `done` of `total` are done, and what they are."""


@contextmanager
def stages_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for one thing after another; yields what moves it: what is done, how many, of how many."""
    with loading_bar("starting") as progress:
        yield lambda stage, done, total: progress(done, total, stage)


@contextmanager
def loading_bar(description: str) -> Iterator[ShowProgress]:
    """Show a bar while the block runs; yields what moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Not rich's own idea of a terminal: FORCE_COLOR in the environment would put bars into redirected errors.
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_seen) as progress:
        task = progress.add_task(description, total=None)

        def show(done: int, total: int, description: str = description) -> None:
            progress.update(task, completed=done, total=total, description=description)

        yield show

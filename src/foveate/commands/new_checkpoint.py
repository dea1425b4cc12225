"""`foveate new-checkpoint`: a checkpoint of the true layout with random weights."""

from pathlib import Path
from typing import Annotated

import typer

from foveate.checkpoints import LAYOUT_NAMES
from foveate.checkpoints import new_checkpoint as write_checkpoint
from foveate.commands.output import write_text
from foveate.commands.progress import loading_bar


def new_checkpoint(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    like: Annotated[str, typer.Option(help=f"One of {', '.join(LAYOUT_NAMES)}.")] = "tiny",
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
) -> None:
    """Make a checkpoint with the layout and sizes of a public one; its weights, and so its words, are random."""
    with loading_bar(f"writing {like}") as progress:
        folder = write_checkpoint(out, like, seed=seed, progress=progress)
    write_text(f"{folder}: layout and sizes of {like}, random weights (seed {seed}): its words mean nothing\n")

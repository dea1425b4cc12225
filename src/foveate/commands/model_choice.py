"""Which model a command runs."""

from typing import Annotated

import typer

ModelOption = Annotated[
    str | None,
    typer.Option(help="A checkpoint folder, or a hub name.", show_default="the small model that ships with Foveate"),
]
"""None is the packaged model, as in `foveate.load`."""


def model_name(model: str | None) -> str:
    """Return what a report calls the model: what was given, or `foveate-demo` for the packaged one."""
    return "foveate-demo" if model is None else model

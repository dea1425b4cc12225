"""`foveate doctor`: what this machine is, and what of Foveate will run where."""

import dataclasses
import json
import sys
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from foveate.kernels.attention import attention_backend
from foveate.loading import choose_device
from foveate.machine import MachineCard, machine_card


def doctor(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Tell what this machine is and what will run where."""
    card, chosen = machine_card(), choose_device(device)
    parts = placement(chosen)
    if as_json:
        sys.stdout.write(json.dumps({**dataclasses.asdict(card), "placement": parts}) + "\n")
        return
    console = Console()
    console.print(_table("This machine", _card_rows(card)))
    console.print(_table("What runs where", parts))


def placement(device: torch.device) -> dict[str, str]:
    """Return, for each stage of a request, where and how it runs when the model is on `device`."""
    default = "the checkpoint's type" if device.type == "cuda" else "float32"
    return {
        "image decoding": "Pillow on the CPU",
        "tiles and patches": "torchvision on the CPU, the reference's own arithmetic",
        "vision encoder": f"{device}, eager; attention: {attention_backend(device)}",
        "language model": f"{device}, eager; attention: torch scaled_dot_product_attention",
        "type": default,
    }


def _card_rows(card: MachineCard) -> dict[str, str]:
    rows = {"Python": card.python, "system": f"{card.system}, {card.processor_cores} cores"}
    rows.update(card.libraries)
    rows["CUDA"] = f"{card.cuda or 'none'} (driver {card.driver or 'not found'})"
    for index, device in enumerate(card.devices):
        memory = f"{device.memory_bytes / 2**30:.0f} GiB, {device.multiprocessors} multiprocessors"
        rows[f"cuda:{index}"] = f"{device.name}, {memory}, compute capability {device.capability}"
    if not card.devices:
        rows["devices"] = "no CUDA device that torch can use: everything runs on the CPU"
    return rows


def _table(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, value)
    return table

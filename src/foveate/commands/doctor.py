"""`foveate doctor`: what this machine is, and what of Foveate will run where."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from foveate.commands.graph_report import graph_records, graph_table
from foveate.commands.output import write_json
from foveate.commands.progress import stages_bar
from foveate.engine.encoder_kernels import choose_attention
from foveate.engine.encoding import EagerImageEncoder
from foveate.engine.pictures import find_jpeg_decoder
from foveate.errors import MissingExtraError
from foveate.kernels.attention_choice import prefer
from foveate.kernels.availability import attention_backend, decode_steps
from foveate.loading import choose_device, load, parse_compilation_config, wants_graphs
from foveate.machine import MachineCard, machine_card
from foveate.vlm import VLM

if TYPE_CHECKING:
    from foveate.graphs import EncoderCudaGraphManager


def doctor(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    model: Annotated[
        str | None, typer.Option(help="A checkpoint to load: shows the start-up check and the memory of its graphs.")
    ] = None,
    compilation_config: Annotated[
        str | None, typer.Option(help="JSON with the encoder graphs' switches, or @FILE.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Tell what this machine is and what will run where."""
    card, chosen = machine_card(), choose_device(device)
    settings = parse_compilation_config(compilation_config)
    parts = placement(chosen, graphs=wants_graphs(settings, chosen))
    vlm = _loaded(model, device, compilation_config) if model else None
    manager = _graphs_of(vlm) if vlm else None
    if vlm and (times_us := choose_attention(vlm.model)):
        told = ", ".join(f"{name} {microseconds:g} µs" for name, microseconds in times_us.items())
        parts["attention"] = f"{prefer(times_us)}; measured on one and five full tiles: {told}"
    if as_json:
        graphs = graph_records(manager) if manager else None
        write_json({**dataclasses.asdict(card), "placement": parts, "encoder_graphs": graphs})
        return
    console = Console()
    console.print(_table("This machine", _card_rows(card)))
    console.print(_table("What runs where", parts))
    if manager:
        console.print(graph_table(manager))
    elif settings and settings != parse_compilation_config(None):
        console.print("Give --model to see the graphs that this compilation config makes.")


def _loaded(model: str, device: str, compilation_config: str | None) -> VLM:
    with stages_bar() as progress:
        return load(model, device=device, compilation_config=compilation_config, progress=progress)


def _graphs_of(vlm: VLM) -> "EncoderCudaGraphManager[Any] | None":
    encoder = vlm.encoder
    if isinstance(encoder, EagerImageEncoder):
        return None
    # Imported here: `foveate describe` must work where the graph runtime has been taken out.
    from foveate.engine.graph_encoding import GraphImageEncoder

    return encoder.manager if isinstance(encoder, GraphImageEncoder) else None


def placement(device: torch.device, *, graphs: bool) -> dict[str, str]:
    """Return, for each stage of a request, where and how it runs when the model is on `device`."""
    on_cuda = device.type == "cuda"
    encoder = ("captured graphs" if on_cuda else "graphs' plans, kernel by kernel") if graphs else "eager"
    return {
        "image decoding": _image_decoding(device),
        "tiles and patches": f"torch on {device}"
        if on_cuda
        else "torchvision on the CPU, the reference's own arithmetic",
        "vision encoder": f"{device}, {encoder}; attention: {attention_backend(device)}",
        "language model": f"{device}, {decode_steps(device)}",
        "type": "the checkpoint's type" if on_cuda else "float32",
    }


def _image_decoding(device: torch.device) -> str:
    try:
        decoder = find_jpeg_decoder("gpu" if device.type == "cuda" else "cpu", device)
    except MissingExtraError as error:
        return f"Pillow on the CPU ({error})"
    return f"ordinary JPEGs: {decoder.name} on {device}; others: Pillow on the CPU" if decoder else "Pillow on the CPU"


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

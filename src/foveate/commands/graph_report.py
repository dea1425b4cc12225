"""The encoder graphs of a loaded model, as rows for people and as records for programs."""

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:  # `foveate describe` must work where the graph runtime has been taken out.
    from foveate.graphs import EncoderCudaGraphManager, GraphReport


def graph_records(manager: "EncoderCudaGraphManager[Any]") -> dict[str, Any]:
    """Return what the start-up check found and what every graph costs."""
    memory = manager.memory
    return {
        "backend": manager.backend_name,
        "graphs": [_record(report) for report in manager.reports],
        "buffer_bytes": memory.buffer_bytes,
        "pool_bytes": memory.pool_bytes,
        "card_bytes": memory.free_before_bytes - memory.free_after_bytes,
        "start_up": {name: _rounded(value) for name, value in dataclasses.asdict(manager.start_up).items()},
    }


def graph_table(manager: "EncoderCudaGraphManager[Any]") -> Table:
    """Return the same as a table, largest graph first: graphs share one pool, so the first takes most of it."""
    memory = manager.memory
    table = Table(
        title=f"Encoder graphs ({manager.backend_name})",
        title_justify="left",
        caption=f"shared buffers {_megabytes(memory.buffer_bytes)}, shared pool {_megabytes(memory.pool_bytes)};"
        f" ready after {manager.start_up.total_s:.1f} s, {manager.start_up.cost_source} costs",
    )
    for name in ("tokens", "tile slots", "images", "start-up check", "adds to the pool", "one replay"):
        table.add_column(name, justify="left" if name == "start-up check" else "right")
    for report in manager.reports:
        capacity = report.capacity
        sizes = (str(capacity.tokens), str(capacity.tiles), str(capacity.items))
        check = "passed" if report.fault is None else f"switched off: {report.fault}"
        table.add_row(*sizes, check, _megabytes(report.pool_bytes), f"{report.replay_ms:.2f} ms")
    return table


def _record(report: "GraphReport") -> dict[str, Any]:
    return {
        "tokens": report.capacity.tokens,
        "tile_slots": report.capacity.tiles,
        "images": report.capacity.items,
        "fault": report.fault,
        "pool_bytes": report.pool_bytes,
        "replay_ms": round(report.replay_ms, 3),
    }


def _rounded(value: float | str) -> float | str:
    return round(value, 3) if isinstance(value, float) else value


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"

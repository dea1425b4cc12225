"""What the manager demands of a model and of its caller; a breach is told by name before anything is overwritten."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.graphs.plan import Plan, PlannedRun
from foveate.graphs.protocol import BufferSpec, EncoderItemSpec


@dataclass(frozen=True)
class OutputRows:
    """Where results go when the caller has a place for them."""

    embeddings: Tensor
    """`[rows, output_width]`, written in place."""
    rows: Tensor
    """`[output tokens of the batch]` int64 on the same device: the row that takes each output row."""


def check_plan(plan: Plan, specs: Sequence[EncoderItemSpec], budgets: Collection[int]) -> None:
    """Raise ValueError if `plan` was made for another batch, or by a manager with other budgets."""
    tiles, tokens = sum(len(spec.tiles) for spec in specs), sum(spec.output_tokens for spec in specs)
    if (plan.num_tiles, plan.tokens) != (tiles, tokens):
        raise ValueError(
            f"the plan is for {plan.num_tiles} tiles of {plan.tokens} tokens, the batch has {tiles} of {tokens};"
            " plan this batch"
        )
    unknown = [run.budget for run in plan.replays if run.budget not in budgets]
    if unknown:
        raise ValueError(f"the plan replays {unknown[0]} tokens, for which there is no graph; plan with this manager")
    sizes = [(tile.output_tokens, tile.input_size) for spec in specs for tile in spec.tiles]
    for run in plan.runs:
        own = sizes[run.first_tile : run.end_tile]
        if (run.tokens, run.input_rows) != (sum(size[0] for size in own), sum(size[1] for size in own)):
            raise ValueError("the plan was made for other tiles than this batch has; plan this batch")


def check_out(out: OutputRows, tokens: int, width: int) -> None:
    """Raise ValueError if the results of a batch do not fit into the caller's rows.

    The row numbers themselves are on the device and are not read: that each is in range, and none comes twice, is the
    caller's to see to.
    """
    if out.rows.dtype != torch.int64 or not out.embeddings.is_floating_point():
        raise ValueError(
            f"out has rows of {out.rows.dtype} and embeddings of {out.embeddings.dtype}; rows must be int64 and"
            " embeddings of a floating-point type"
        )
    if out.rows.device != out.embeddings.device:
        raise ValueError(f"out has rows on {out.rows.device} and embeddings on {out.embeddings.device}; use one device")
    if out.rows.shape != (tokens,) or out.embeddings.ndim != 2 or out.embeddings.shape[1] != width:
        raise ValueError(
            f"the batch gives {tokens} rows of {width}, but out has {list(out.rows.shape)} row numbers for embeddings"
            f" of shape {list(out.embeddings.shape)}"
        )


def check_rows(buffers: Sequence[BufferSpec], values: Mapping[str, Tensor], run: PlannedRun) -> None:
    """Raise ValueError if a model fills its buffers with other rows than its item specs say."""
    for spec in buffers:
        rows, planned = values[spec.key].shape[0], len(run.tiles) if spec.rows == "tile" else run.input_rows
        if rows != planned:
            raise ValueError(
                f"the model gives {rows} rows for the buffer {spec.key!r}, its item specs say {planned}; correct either"
            )


def check_output(output: Tensor, run: PlannedRun) -> Tensor:
    """Return what the eager forward gave; raises ValueError if those are other rows than the item specs say."""
    if output.shape[0] != run.tokens:
        raise ValueError(
            f"the model's eager forward gives {output.shape[0]} rows, its item specs say {run.tokens}; correct either"
        )
    return output

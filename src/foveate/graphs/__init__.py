"""Encoder CUDA graphs for any model: captured at token budgets, planned by tiles, checked at the start.

A leaf: it knows torch and Foveate's errors, no model. `docs/encoder-graphs.md` explains it.
"""

from foveate.errors import GraphCheckError
from foveate.graphs.backends import CudaGraphBackend, EagerBackend, GraphBackend, Work
from foveate.graphs.contract import OutputRows
from foveate.graphs.manager import EncoderCudaGraphManager
from foveate.graphs.plan import EagerReason, Plan, PlannedRun
from foveate.graphs.planner import LinearCost, Planner, ReplayCost
from foveate.graphs.protocol import (
    BudgetRange,
    BufferSpec,
    EncoderCudaGraphConfig,
    EncoderItemSpec,
    GraphCapacity,
    SupportsEncoderCudaGraph,
    TileSpec,
)
from foveate.graphs.settings import EncoderGraphSettings, parse_settings
from foveate.graphs.stats import EncoderStats, GraphMemory, GraphReport

__all__ = [
    "BudgetRange",
    "BufferSpec",
    "CudaGraphBackend",
    "EagerBackend",
    "EagerReason",
    "EncoderCudaGraphConfig",
    "EncoderCudaGraphManager",
    "EncoderGraphSettings",
    "EncoderItemSpec",
    "EncoderStats",
    "GraphBackend",
    "GraphCapacity",
    "GraphCheckError",
    "GraphMemory",
    "GraphReport",
    "LinearCost",
    "OutputRows",
    "Plan",
    "PlannedRun",
    "Planner",
    "ReplayCost",
    "SupportsEncoderCudaGraph",
    "TileSpec",
    "Work",
    "parse_settings",
]

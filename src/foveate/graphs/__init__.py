"""Encoder CUDA graphs for any model: captured at token budgets, planned by tiles, checked at the start.

A leaf: it knows torch and Foveate's errors, no model. `docs/encoder-graphs.md` explains it.
"""

from foveate.errors import GraphCheckError
from foveate.graphs.backends import CudaGraphBackend, EagerBackend, GraphBackend, Work
from foveate.graphs.contract import OutputRows
from foveate.graphs.cost_store import CostStore
from foveate.graphs.costs import EncoderCosts, FixedCosts, MeasuredCosts
from foveate.graphs.manager import EncoderCudaGraphManager
from foveate.graphs.plan import EagerReason, Plan, PlannedRun
from foveate.graphs.planner import Planner
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
from foveate.graphs.stats import EncoderStats, GraphMemory, GraphReport, StartUp

__all__ = [
    "BudgetRange",
    "BufferSpec",
    "CostStore",
    "CudaGraphBackend",
    "EagerBackend",
    "EagerReason",
    "EncoderCosts",
    "EncoderCudaGraphConfig",
    "EncoderCudaGraphManager",
    "EncoderGraphSettings",
    "EncoderItemSpec",
    "EncoderStats",
    "FixedCosts",
    "GraphBackend",
    "GraphCapacity",
    "GraphCheckError",
    "GraphMemory",
    "GraphReport",
    "MeasuredCosts",
    "OutputRows",
    "Plan",
    "PlannedRun",
    "Planner",
    "StartUp",
    "SupportsEncoderCudaGraph",
    "TileSpec",
    "Work",
    "parse_settings",
]

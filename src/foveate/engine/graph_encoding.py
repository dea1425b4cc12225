"""Pictures → image features on captured graphs."""

from functools import lru_cache

import torch

from foveate.engine.encoder_costs import cost_store
from foveate.engine.encoding import EncodedImages, EncoderReport
from foveate.graphs import EncoderCudaGraphManager, EncoderGraphSettings, Plan
from foveate.graphs.capturing import Progress
from foveate.models.lfm2_vl.encoder_graphs import Lfm2VlEncoderGraphs
from foveate.models.lfm2_vl.image_batch import ImageBatch
from foveate.models.lfm2_vl.model import Lfm2VlModel


class GraphImageEncoder:
    """Runs every batch by the manager's plan."""

    def __init__(self, manager: EncoderCudaGraphManager[ImageBatch]) -> None:
        self.manager = manager

    def encode(self, batch: ImageBatch, most_ms: float | None = None) -> EncodedImages:
        """Encode a batch, in replays of at most `most_ms`."""
        plan, features = self.manager.plan_and_execute(batch, most_ms=most_ms)
        return EncodedImages(features, _report(plan, self.manager.backend_name))


@lru_cache(maxsize=1024)
def _report(plan: Plan, backend_name: str) -> EncoderReport:
    reasons = [run.reason or "unknown" for run in plan.eager_runs]
    return EncoderReport(
        mode="cuda_graph" if backend_name == "cuda_graph" else "eager_buffers",
        real_tokens=plan.tokens,
        replays=tuple(run.budget for run in plan.replays if run.budget is not None),
        padded_tokens=sum(run.padded_tokens for run in plan.replays),
        eager_runs={reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
    )


def capture_encoder(
    model: Lfm2VlModel,
    settings: EncoderGraphSettings,
    *,
    strict: bool = False,
    refresh_costs: bool = False,
    progress: Progress | None = None,
) -> GraphImageEncoder:
    """Capture and check the encoder graphs of a model, and measure what they cost if that is not known yet.

    `refresh_costs` has the costs measured again. Raises ConfigurationError when `settings` do not fit the model.
    """
    graphs = Lfm2VlEncoderGraphs(model.encoder, model.config)
    store = cost_store(model, refresh=refresh_costs)
    manager = EncoderCudaGraphManager(graphs, torch.device(model.device), settings, cost_store=store, strict=strict)
    manager.capture(progress)
    return GraphImageEncoder(manager)

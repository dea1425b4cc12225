"""Where the measured costs of an encoder are kept."""

import torch

from foveate.engine.encoder_key import encoder_key
from foveate.graphs import CostStore
from foveate.machine import cache_folder
from foveate.models.lfm2_vl.model import Lfm2VlModel


def cost_store(model: Lfm2VlModel, *, refresh: bool = False) -> CostStore | None:
    """Return where the costs of this model's encoder on its card are kept; None without CUDA, where none are measured.

    `refresh` has them measured again.
    """
    folder = cache_folder()
    if torch.device(model.device).type != "cuda" or folder is None:
        return None
    return CostStore(folder, encoder_key(model), refresh=refresh)

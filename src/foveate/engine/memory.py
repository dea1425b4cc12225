"""How many pages and slots there are, and the device memory behind them."""

from dataclasses import dataclass

import torch

from foveate.engine.caches import PAGE_TOKENS, CachePool
from foveate.engine.settings import CPU_CACHE_MEGABYTES, EngineSettings
from foveate.engine.slots import SlotTable
from foveate.errors import ConfigurationError
from foveate.models.lfm2_vl.model import Lfm2VlModel


@dataclass(frozen=True)
class EngineMemory:
    """All that an engine holds on the device, beside weights and graphs."""

    pool: CachePool
    """Pages and slots; one of each is spare, for padding."""
    slots: SlotTable
    """What is known of each slot."""


def allocate(model: Lfm2VlModel, settings: EngineSettings) -> EngineMemory:
    """Allocate the caches; raises ConfigurationError where there is not room for a single page."""
    language, slots = model.config.language, settings.max_running
    one = model.language.new_caches(pages=1, page_tokens=PAGE_TOKENS, slots=1)
    page_bytes, slot_bytes = one.keys.nbytes + one.values.nbytes, one.states.nbytes
    room = cache_bytes(model.device, settings) - (slots + 1) * slot_bytes
    most_pages = -(-language.max_positions // PAGE_TOKENS)
    pages = min(int(room // page_bytes) if page_bytes else most_pages, slots * most_pages)
    if pages < 1:
        raise ConfigurationError(
            f"the caches have {room / 1e6:.3f} MB for pages of {page_bytes / 1e6:.3f} MB, and not room for one:"
            " set cache_megabytes (or cache_fraction) higher, or max_running lower"
        )
    tensors = model.language.new_caches(pages=pages + 1, page_tokens=PAGE_TOKENS, slots=slots + 1)
    table = SlotTable(
        slots,
        most_pages=min(pages, most_pages),
        dummy_page=pages,
        page_tokens=PAGE_TOKENS,
        vocab_size=language.vocab_size,
        device=model.device,
    )
    return EngineMemory(CachePool(tensors, spare=1), table)


def cache_bytes(device: torch.device, settings: EngineSettings) -> float:
    """Return how many bytes the caches may take."""
    if settings.cache_megabytes is not None:
        return settings.cache_megabytes * 1e6
    if device.type != "cuda":
        return CPU_CACHE_MEGABYTES * 1e6
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return free * settings.cache_fraction

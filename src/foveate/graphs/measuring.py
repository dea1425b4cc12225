"""Memory and time of a device, for the start: what graphs cost. Each of these waits for the device."""

import time

import torch

from foveate.graphs.backends import Work


def reserved_bytes(device: torch.device) -> int:
    """Return the bytes that torch's allocator holds on `device`; 0 without CUDA.

    What other work has cached is given back first, so that the difference of two calls is what was kept in between.
    """
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_stats(device)["reserved_bytes.all.current"])


def free_bytes(device: torch.device) -> int:
    """Return the free memory of the card, which others use too; 0 without CUDA."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def time_ms(device: torch.device, work: Work) -> float:
    """Return the milliseconds of one run of `work`, on the device's own clock where it has one."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start_event.record()
    work()
    end_event.record()
    end_event.synchronize()
    return float(start_event.elapsed_time(end_event))

"""Which attention the vision encoder runs on a card: ours, or the library's where that was measured to be faster.

Only what can be captured is compared: both read the sequence bounds on the device.
"""

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.kernels.attention import Attention, packed_attention

__all__ = ["AttentionSetting", "flash_attention", "measure_attention", "prefer"]

OURS, LIBRARY = "triton", "flash"
MARGIN = 0.05
"""What the library must save to be taken: measured times differ by about that."""
TILES = (1, 5)
"""Full tiles of the launches that are timed."""
LAUNCHES, ROUNDS = 10, 9


@dataclass(frozen=True)
class AttentionSetting:
    """What decides which is faster, beside the card."""

    heads: int
    head_size: int
    dtype: torch.dtype
    longest: int
    """Patches of a full tile."""


def flash_attention(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Compute what `packed_attention` does by torch's FlashAttention; bfloat16 and float16 alone."""
    from torch.nn.attention.varlen import varlen_attn

    attended = varlen_attn(query, key, value, bounds, bounds, longest, longest)
    assert isinstance(attended, Tensor)
    padding = torch.arange(query.shape[0], device=query.device) >= bounds[-1]
    return attended.flatten(1).masked_fill_(padding[:, None], 0)


WAYS: dict[str, Attention] = {OURS: packed_attention, LIBRARY: flash_attention}


@torch.inference_mode()
def measure_attention(setting: AttentionSetting, device: torch.device) -> dict[str, float]:
    """Return the microseconds of a launch of each way that works here, summed over two batches, on a CUDA device.

    A way that raises, or gives other numbers than the first that works, is left out.
    """
    found: dict[str, float] = {}
    expected: list[Tensor] | None = None
    for name, way in WAYS.items():
        try:
            results = [_timed(way, setting, tiles, device) for tiles in TILES]
        except Exception:  # the library raises what it likes for what it does not take
            continue
        expected = expected or [out for out, _ in results]
        if all(_is_close(out, right) for (out, _), right in zip(results, expected, strict=True)):
            found[name] = round(sum(microseconds for _, microseconds in results), 2)
    return found


def prefer(times_us: dict[str, float]) -> str:
    """Return the way to take: ours, unless it does not work or the library's saves more than 5 %."""
    if OURS not in times_us:
        return LIBRARY if LIBRARY in times_us else OURS
    is_faster = times_us.get(LIBRARY, float("inf")) < (1 - MARGIN) * times_us[OURS]
    return LIBRARY if is_faster else OURS


def _timed(way: Attention, setting: AttentionSetting, tiles: int, device: torch.device) -> tuple[Tensor, float]:
    """Return the result of a way on some full tiles of noise, and the microseconds of a launch inside a graph."""
    rows = tiles * setting.longest
    generator = torch.Generator(device).manual_seed(tiles)
    shape = (rows, 3, setting.heads, setting.head_size)
    query, key, value = torch.randn(shape, device=device, generator=generator).to(setting.dtype).unbind(1)
    bounds = torch.arange(tiles + 1, device=device, dtype=torch.int32) * setting.longest
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        out = way(query, key, value, bounds, setting.longest)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(LAUNCHES):
            way(query, key, value, bounds, setting.longest)
    torch.cuda.current_stream(device).wait_stream(stream)
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / LAUNCHES)
    return out, statistics.median(times)


def _is_close(out: Tensor, right: Tensor) -> bool:
    return bool((out.float() - right.float()).norm() <= 0.02 * right.float().norm())

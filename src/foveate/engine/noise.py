"""Random numbers that follow from a seed and a position alone, for a whole batch at once.

Instead of generators with a state: nothing has to be kept or advanced on the host, so a captured step draws new numbers
each time it is replayed, and a request draws the same ones in any company and on any device.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_SHIFTS = (30, 27, 31)
_BITS = 23
"""Bits of a uniform number: the largest of them, with the half that keeps it above 0, is still below 1 in float32."""


def exponential_noise(seed: Tensor, position: Tensor, size: int) -> Tensor:
    """Return `[rows, size]` numbers of the exponential distribution, float32, never 0 and never infinite.

    seed, position: `[rows, 1]` int64. Each row is a stretch of the sequence of SplitMix64 (Steele, Lea and Flood,
    "Fast splittable pseudorandom number generators", OOPSLA 2014) that begins at a hash of its seed and position.
    """
    start = _mixed(_mixed(seed) + position * _GOLDEN)
    steps = torch.arange(1, size + 1, device=seed.device)
    bits = _shifted(_mixed(start + steps * _GOLDEN), 64 - _BITS)
    return -((bits.to(torch.float32) + 0.5) * 2.0**-_BITS).log()


def _mixed(numbers: Tensor) -> Tensor:
    """The finaliser of SplitMix64; products wrap around as those of unsigned numbers do."""
    numbers = (numbers ^ _shifted(numbers, _SHIFTS[0])) * _FACTORS[0]
    numbers = (numbers ^ _shifted(numbers, _SHIFTS[1])) * _FACTORS[1]
    return numbers ^ _shifted(numbers, _SHIFTS[2])


def _shifted(numbers: Tensor, places: int) -> Tensor:
    """Shift int64 to the right and fill with zeros, as if it were unsigned."""
    return (numbers >> places) & (2 ** (64 - places) - 1)

"""Muon for many small matrices: those of one shape are orthogonalised together.

`torch.optim.Muon` takes one matrix at a time, some 1,300 launches a step for this model, and reads its rate on the
host, so it cannot be captured in a CUDA graph. Source of the method: https://kellerjordan.github.io/posts/muon/
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon:
    """Momentum, then the nearest orthogonal matrix as the update. A matrix that stacks square ones (queries, keys and
    values) is taken as those."""

    def __init__(self, parameters: Iterable[Tensor], rate: float, momentum: float = 0.95, decay: float = 0.02) -> None:
        self._rate, self._momentum, self._decay = rate, momentum, decay
        self._groups: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            rows, columns = parameter.shape
            shape = (columns, columns) if rows % columns == 0 else (rows, columns)
            self._groups[shape].append(parameter)
        self.momenta = [
            torch.zeros(sum(each.numel() for each in group) // (shape[0] * shape[1]), *shape, device=group[0].device)
            for shape, group in self._groups.items()
        ]
        """For each shape, `[matrices, rows, columns]`."""

    @torch.no_grad()
    def step(self, share: Tensor) -> None:
        """Take one step at `share` (a scalar on the device) of the full rate."""
        for ((rows, columns), group), momentum in zip(self._groups.items(), self.momenta, strict=True):
            gradient = torch.cat([each.grad.view(-1, rows, columns) for each in group if each.grad is not None])
            momentum.lerp_(gradient, 1 - self._momentum)
            update = orthogonal(gradient.lerp(momentum, self._momentum)).float()
            update *= share * (self._rate * max(1.0, rows / columns) ** 0.5)
            sizes = [each.numel() // (rows * columns) for each in group]
            updates = [part.reshape(each.shape) for part, each in zip(update.split(sizes), group, strict=True)]
            torch._foreach_mul_(group, 1 - share * (self._rate * self._decay))
            torch._foreach_sub_(group, updates)


def orthogonal(matrices: Tensor) -> Tensor:
    """Return about the nearest orthogonal matrix to each of `[matrices, rows, columns]`, in bfloat16.

    Five Newton-Schulz steps: singular values come out between about 0.7 and 1.2.
    """
    first, second, third = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    found = (matrices.mT if is_tall else matrices).bfloat16()
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=second, alpha=third), found, beta=first)
    return found.mT if is_tall else found

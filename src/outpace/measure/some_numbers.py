"""Some of a tensor's numbers, at equal distances: enough to see whether they change."""

from __future__ import annotations

import torch

MOST = 1 << 16
"""of one tensor"""


def some_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """At most about so many; of complex ones both parts."""
    numbers = tensor.detach().flatten()
    some = numbers[:: max(1, len(numbers) // MOST)]
    return torch.view_as_real(some.resolve_conj()).flatten() if some.is_complex() else some

"""Torch's count of how often a tensor was changed where it is."""

from __future__ import annotations

import torch


def changes(tensor: torch.Tensor) -> int:
    """So often; 0 for one that was made in inference mode, of which none are counted."""
    return 0 if tensor.is_inference() else tensor._version

"""Torch's count of how often a tensor was changed where it is."""

from __future__ import annotations

import torch


def version_of(tensor: torch.Tensor) -> int:
    """So many times; 0 of one that was made in inference mode, of which none are counted."""
    return 0 if tensor.is_inference() else tensor._version

"""Whether float32 products on a GPU are made in TF32: torch has an old switch for it, and a new one.

Where a script has used the new one (``fp32_precision``, torch 2.9) the old ones raise when they are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class Precision(NamedTuple):
    """Of matrix products and of convolutions, in the words of the switches that are in use."""

    matmul: str
    convolutions: bool | str
    new: bool
    """by the new switches"""


def precision() -> Precision:
    """As it is."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    try:
        return Precision(torch.get_float32_matmul_precision(), bool(cudnn.allow_tf32), new=False)
    except RuntimeError:
        conv: Any = cudnn.conv  # type: ignore[attr-defined]
        return Precision(cuda.matmul.fp32_precision, conv.fp32_precision, new=True)


def set_precision(wanted: Precision) -> None:
    """To what `precision` gave, or to `in_tf32`."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    if wanted.new:
        cuda.matmul.fp32_precision = wanted.matmul
        cudnn.conv.fp32_precision = wanted.convolutions  # type: ignore[attr-defined]
    else:
        torch.set_float32_matmul_precision(wanted.matmul)
        cudnn.allow_tf32 = bool(wanted.convolutions)


def in_tf32(now: Precision) -> Precision:
    """TF32 for all, by the switches that are in use."""
    return Precision("tf32", "tf32", new=True) if now.new else Precision("high", True, new=False)


def computed_in(device: str) -> str:
    """What products of float32 are computed in; "" where some are in TF32 and some are not."""
    if device != "cuda":
        return "float32"
    now = precision()
    coarse = now.matmul not in ("highest", "ieee", "none"), now.convolutions in (True, "tf32")
    return ("float32", "", "tf32")[sum(coarse)]

"""bf16: the model is called in mixed precision to learn."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch
from torch.nn import functional as F

from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

LONG = 400
"""tokens from which on a CPU's attention is no slower in bfloat16: 64 to 256 tokens took 1.3 to 3.6 times
as long, 512 and 2048 0.7 and 0.6 times (an Intel Xeon with AMX, torch 2.13)
"""


@final
class Bf16(Strategy):
    """Matrix products and convolutions of the steps are in bfloat16.

    What: the model is called under ``torch.autocast``; weights, gradients and the optimizer stay in
    float32, and so does a loss of outputs; on a CPU also attention between few tokens, whose kernel is
    slower in bfloat16. Validations are in float32 as ever: what is judged and kept
    is the model as it will be used.
    Helps: where steps are bound by arithmetic and the machine has units for bfloat16 (GPUs from Ampere
    on, CPUs with AMX or AVX512-BF16): convolutions and transformers take half of the time.
    Harms: where there are none, or layers are small: casting costs more than it saves. Results are
    rounded to eight bits: a model whose gradients drown in that learns worse. "auto" takes it only where
    steps are faster beyond doubt, and gradients the same but for a tenth at most
    (`outpace.train.faster`).
    Source: Micikevicius et al. 2018, arXiv 1710.03740 (weights in float32); Kalamkar et al. 2019, arXiv
    1905.12322 (bfloat16 needs no scaling of the loss).
    """

    name = "bf16"
    sets = ("the precision",)
    clashes = {  # noqa: RUF012
        "quantization_aware": "rounding to int8 would be learnt of what is rounded already"
    }

    def prepare(self, run: Run) -> None:
        """From the first call on."""
        run.objective.precision = functools.partial(half, run.device.type)


@contextmanager
def half(device: str) -> Iterator[None]:
    """Inside, what autocast does so is in bfloat16."""
    with torch.autocast(device, torch.bfloat16):
        if device != "cpu":
            yield
            return
        original = F.scaled_dot_product_attention
        F.scaled_dot_product_attention = functools.partial(attention, original)
        try:
            yield
        finally:
            F.scaled_dot_product_attention = original


def attention(
    original: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """That between few tokens in float32."""
    if query.shape[-2] >= LONG or query.dtype != torch.bfloat16:
        found: torch.Tensor = original(query, key, value, attn_mask, *args, **kwargs)
        return found
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.float()
    with torch.autocast(query.device.type, enabled=False):
        found = original(query.float(), key.float(), value.float(), attn_mask, *args, **kwargs)
    return found.to(query.dtype)

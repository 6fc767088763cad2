"""bf16: the model is called in mixed precision to learn."""

from __future__ import annotations

import functools
import weakref
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

    def __init__(self) -> None:
        self.few: FewInFloat32 | None = None

    def prepare(self, run: Run) -> None:
        """From the first call on."""
        device = run.device.type
        run.objective.precision = functools.partial(torch.autocast, device, torch.bfloat16)
        self.few = FewInFloat32() if device == "cpu" else None

    def over(self, run: Run) -> None:
        """Leave torch's attention as it came."""
        self.few = None


@final
class FewInFloat32:
    """As long as there is one, attention between few tokens is in float32 on a CPU where autocast is on: also
    in the backward pass, in which blocks of a checkpoint are called again. Nobody tells a trial's strategy
    that it is over: it is dropped, and this with it.
    """

    count, original = 0, F.scaled_dot_product_attention

    def __init__(self) -> None:
        if not FewInFloat32.count:
            FewInFloat32.original = F.scaled_dot_product_attention
            F.scaled_dot_product_attention = functools.partial(attention, FewInFloat32.original)
        FewInFloat32.count += 1
        weakref.finalize(self, FewInFloat32.gone)

    @staticmethod
    def gone() -> None:
        """One less."""
        FewInFloat32.count -= 1
        if not FewInFloat32.count:
            F.scaled_dot_product_attention = FewInFloat32.original


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
    half = query.dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")
    if query.shape[-2] >= LONG or not half:
        found: torch.Tensor = original(query, key, value, attn_mask, *args, **kwargs)
        return found
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.float()
    with torch.autocast(query.device.type, enabled=False):
        found = original(query.float(), key.float(), value.float(), attn_mask, *args, **kwargs)
    return found.to(query.dtype)

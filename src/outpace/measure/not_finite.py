"""Which module made the first number that is not finite: the model is run again on the same batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from outpace.measure.again import last_call, unseen
from outpace.seams.batch import tensors_in
from outpace.seams.host import Host


def who_made_it(host: Host) -> str | None:
    """Where a loss that is not finite comes from, in words; None where it cannot be told.

    Asked right after the backward pass: the weights are still those that made the loss.
    """
    call = last_call(host)
    if call is None:
        return None
    module, args, kwargs = call.module, call.args, call.kwargs
    bad = next((n for n, p in module.named_parameters() if not _finite(p)), None)
    if bad is not None:
        return f"{bad} was not finite any more: a step before has spoiled it"
    if not _finite((args, kwargs)):
        return "the batch that the model was given is not finite"
    made: list[str] = []

    def after(one: nn.Module, inputs: Any, out: Any) -> None:
        if not made and not _finite(out) and _finite(inputs):
            made.append(f"{names[one]} ({type(one).__name__})")

    names = {one: name or "the model" for name, one in module.named_modules()}
    handles = [one.register_forward_hook(after) for one in names]
    try:
        with torch.no_grad(), unseen(host, module):
            call.made_of(args, kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if made:
        return f"{made[0]} is the first module whose output is not"
    return "the model's output is finite: it was made after the model, on the way to the loss"


def _finite(value: Any) -> bool:
    return all(
        bool(torch.isfinite(tensor).all())
        for tensor in tensors_in(value)
        if tensor.is_floating_point()
    )

"""Which module made the first number that is not finite: the model is run again on the same batch.

A mask is -inf where nothing is to be seen: that is no fault of a batch, and of a module only where something
worse comes of it, or it comes out of the model.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from outpace.measure.again import Call, last_calls, unseen
from outpace.seams.batch import tensors_in
from outpace.seams.hooks import has_others, scripted_in
from outpace.seams.host import Host

FINE = "the model's output is finite: it was made after the model, on the way to the loss"


def who_made_it(host: Host) -> str | None:
    """Where a loss that is not finite comes from, in words; None where it cannot be told.

    Asked right after the backward pass: the weights are still those that made the loss. Of several models
    the first one that made such numbers, or was given them.
    """
    times = set()
    for call in last_calls(host):
        if call is None or has_others(call.module):
            return None  # it cannot be called again, or the script's hooks would see that
        if (told := _made_in(host, call)) is not None:
            return told
        times.add(call.times)
    return FINE if times == {1} else None  # calls before the last were not looked at


def _made_in(host: Host, call: Call) -> str | None:
    """What is told of one model; None where it makes nothing of that kind."""
    module, args, kwargs = call.module, call.args, call.kwargs
    learnt = ((n, p) for n, p in module.named_parameters() if p.requires_grad)
    bad = next((name for name, parameter in learnt if _infinite(parameter)), None)
    if bad is not None:
        return f"{bad} was not finite any more: a step before has spoiled it"
    if _spoilt((args, kwargs)):
        return "the batch that the model was given is not finite"
    spoilt: list[nn.Module] = []
    hiding: list[nn.Module] = []
    """those that made numbers -inf"""

    def after(one: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        given = args, kwargs
        if not spoilt and _spoilt(out) and not _spoilt(given):
            spoilt.append(hiding[-1] if hiding and _infinite(given) else one)
        elif _infinite(out) and not _infinite(given) and not set(hiding[-1:]) & set(one.modules()):
            hiding.append(one)

    names = {one: name or "the model" for name, one in module.named_modules()}
    with ExitStack() as hooks:
        for one in names.keys() - scripted_in(module):
            hooks.callback(one.register_forward_hook(after, with_kwargs=True).remove)
        with torch.no_grad(), unseen(host, module):
            output = call.made_of(args, kwargs)
    if not spoilt and _infinite(output):
        spoilt = hiding[-1:] or [module]
    if spoilt:
        kind = type(spoilt[0]).__name__
        return f"{names[spoilt[0]]} ({kind}) is the first module whose output is not"
    return None


def _spoilt(value: Any) -> bool:
    """Whether a number is none, or infinitely large."""
    return any(bool((one.isnan() | one.isposinf()).any()) for one in _floats(value))


def _infinite(value: Any) -> bool:
    """Whether a number is none, or infinite either way."""
    return not all(bool(torch.isfinite(one).all()) for one in _floats(value))


def _floats(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.is_floating_point()]

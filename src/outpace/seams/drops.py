"""Dropout that a model does in evaluation mode all the same.

As by `F.dropout(x)`, which drops unless it is told not to; by attention that is given its `dropout_p` in
either mode; or by a layer that is made anew in each call, which `eval()` does not reach. A model's first
call without learning shows whether it draws random numbers; one that does is looked into at its second.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from outpace.seams.compiled import graphs_compiled
from outpace.seams.root import Evaluations
from outpace.seams.where import is_package_file, is_user_file, place

DROPS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
SIGNATURES = {each: inspect.signature(each) for each in DROPS}
ATTENTION = F.scaled_dot_product_attention
PLACE_OF_P = 4
"""of its arguments"""


def looked_at(
    call: Callable[..., Any], found: Evaluations, module: nn.Module, args: Any, kwargs: Any
) -> Any:
    """Call a model in evaluation mode, and note in ``found`` whether it drops."""
    if found.draws:
        found.draws = False  # looked for once
        # What is compiled would be so anew beneath a mode; who has a part in training mode means to drop.
        if not graphs_compiled() and not any(part.training for part in module.modules()):
            with Drops() as drops:
                out = call(module, *args, **kwargs)
            found.drops, found.drops_where = drops.by, drops.where
            return out
        return call(module, *args, **kwargs)
    before = generators_of(module)
    out = call(module, *args, **kwargs)
    found.draws = any(
        not torch.equal(one, other)
        for one, other in zip(before, generators_of(module), strict=True)
    )
    return out


def generators_of(module: nn.Module) -> list[torch.Tensor]:
    """States of the generators that its calls draw from by default; none where they cannot be asked."""
    try:
        return [*_states({parameter.device for parameter in module.parameters()})]
    except Exception:
        return []


def _states(devices: Iterable[torch.device]) -> Iterable[torch.Tensor]:
    yield torch.get_rng_state()
    for device in devices:
        if device.type == "cuda":
            yield torch.cuda.get_rng_state(device)


class Drops(TorchFunctionMode):
    """Sees the first function that drops, where the user's code calls it."""

    by: str | None = None
    where: str | None = None

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.by is None and drops(func, args, kwargs):
            self.where = users_line()
            self.by = func.__name__ if self.where is not None else None
        return func(*args, **kwargs)


def drops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function of torch is called to drop."""
    if func is ATTENTION:
        p = args[PLACE_OF_P] if len(args) > PLACE_OF_P else kwargs.get("dropout_p", 0.0)
        return bool(p > 0)
    if func not in DROPS:
        return False
    told = SIGNATURES[func].bind(*args, **kwargs)
    told.apply_defaults()
    return bool(told.arguments["training"]) and told.arguments["p"] > 0


def users_line() -> str | None:
    """``file:line`` of the user's that calls; None where a package's does, which may mean it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return place(frame)
        if is_package_file(frame.f_code.co_filename):
            return None
        frame = frame.f_back
    return None

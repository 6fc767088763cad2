"""Calls of a model that never changes on batches as they are drawn, as of a teacher.

Where samples are the same in each epoch, what such a call gives is the same too, and can be kept from the
first epoch on. A model never changes if no optimizer has any of its parameters, all of it is in
evaluation mode, and its numbers stay what they are from step to step: those of a moving average, as of a
mean teacher, do not. On a GPU, where a call's time is that of launching it, nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.measure.arms import median
from outpace.measure.dispatch import address_of
from outpace.seams.batch import tensors_in
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.module import ModuleSeam
from outpace.seams.optimizer import held_by
from outpace.seams.where import caller

STEPS = 4
"""looked at; the first only where there is no such call in it"""
NUMBERS = 64
"""of each parameter, the first"""


class Frozen(NamedTuple):
    """Seconds a step of such calls, the line that makes most of them, and the class of its model."""

    seconds: float
    where: str | None
    model: str


class Call(NamedTuple):
    """One such call."""

    model: str
    where: str | None
    seconds: float
    numbers: tuple[float, ...]
    """what tells whether the model has changed"""


class FrozenWatch:
    """Notes such calls of a step."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.calls: list[Call] = []
        self.drawn: set[int] = set()
        """memory of what batches of the step hold"""

    def on_draw(self, _: Any, batch: Any) -> None:
        """A batch is given to the script."""
        self.drawn |= {address_of(tensor) for tensor in tensors_in(batch)} - {0}

    def on_call(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """Note a call."""
        given = list(tensors_in((args, kwargs)))
        drawn = bool(given) and all(address_of(each) in self.drawn for each in given)
        if not drawn or self.host.phases.current() != "forward" or not self._is_frozen(module):
            return None
        where, begun = caller(), perf_counter()

        def ended(out: Any) -> None:
            if not any(tensor.requires_grad for tensor in tensors_in(out)):
                took = perf_counter() - begun
                self.calls.append(Call(type(module).__name__, where, took, _numbers(module)))

        return ended

    def _is_frozen(self, module: nn.Module) -> bool:
        held = held_by(*self.host.optimizers)
        return not any(part.training for part in module.modules()) and not any(
            id(parameter) in held for parameter in module.parameters()
        )

    def of_step(self) -> list[Call]:
        """Those of the ending step."""
        calls, self.calls = self.calls, []
        self.drawn.clear()
        return calls


def frozen(host: Host) -> Generator[None, None, Frozen | None]:
    """Steps of which the calls are noted; gives None where there is no such model."""
    module, loader = host.seams["module"], host.seams["loader"]
    assert isinstance(module, ModuleSeam)
    assert isinstance(loader, LoaderSeam)
    watch, steps = FrozenWatch(host), list[list[Call]]()
    module.on_call, loader.on_draw = watch.on_call, watch.on_draw
    try:
        while len(steps) < STEPS:
            host.group, host.dirty = 1, True
            yield None
            steps.append(watch.of_step())
            if not steps[-1]:
                return None
    finally:
        module.on_call = loader.on_draw = None
    if len({tuple((call.model, call.numbers) for call in calls) for calls in steps}) > 1:
        return None  # its numbers change
    seconds = median([sum(call.seconds for call in calls) for calls in steps])
    most = max(steps[-1], key=lambda call: call.seconds)
    return Frozen(seconds, most.where, most.model)


@torch.no_grad()
def _numbers(module: nn.Module) -> tuple[float, ...]:
    return tuple(float(p.flatten()[:NUMBERS].double().sum()) for p in module.parameters())

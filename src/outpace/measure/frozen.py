"""Calls of a model that never changes, or of such a part, on batches as they are drawn, as of a teacher.

Where samples are the same in each epoch, what such a call gives is the same too, and can be kept from the
first epoch on. A model never changes if no optimizer has any of its parameters, all of it is in
evaluation mode, it draws no random numbers, what it is given beside a batch is the same each time, and its
numbers stay what they are for as long as the training is measured: those of a moving average, as of a mean
teacher, do not, and neither do those of a network that is copied to now and then. On a GPU, where a call's
time is that of launching it, nobody looks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.measure.called_again import calls_of_steps, dear, form_of
from outpace.measure.dispatch import address_of
from outpace.measure.frozen_parts import FrozenParts, never_changes
from outpace.seams.batch import tensors_in
from outpace.seams.generators import moved, states_taken
from outpace.seams.held import held_by
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.module import ModuleSeam
from outpace.seams.version_of import version_of
from outpace.seams.where import caller

NUMBERS = 64
"""of each parameter, the first"""


@dataclass(frozen=True)
class Frozen:
    """Seconds a step of such calls, the line that makes most of them, and the class of its model."""

    seconds: float
    where: str | None
    model: str
    calls: tuple[Call, ...]
    """those of a step"""

    def facts(self) -> dict[str, Any]:
        """For the evidence; none where one of the models has changed since."""
        if any(call.has_changed() for call in self.calls):
            return {}
        return {"frozen_s": self.seconds, "frozen_where": self.where, "frozen_of": self.model}


class Call(NamedTuple):
    """One such call."""

    model: weakref.ref[nn.Module]
    where: str | None
    seconds: float
    numbers: tuple[float, ...]
    """what tells whether the model has changed"""
    settings: Any
    """what it was given beside tensors"""

    def has_changed(self) -> bool:
        """Whether the model's numbers are others by now; one that is gone has none."""
        module = self.model()
        return module is not None and _numbers(module) != self.numbers


class FrozenWatch:
    """Notes such calls of a step."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.calls: list[Call] = []
        self.drawn: dict[tuple[int, int], tuple[torch.Tensor, int]] = {}
        """by their memory and size, the tensors of the step's batches, and their versions as they came"""
        self.parts = FrozenParts(host, self.note)

    def on_draw(self, _: Any, batch: Any) -> None:
        """A batch is given to the script."""
        for tensor in filter(address_of, tensors_in(batch)):
            self.drawn[_identity(tensor)] = tensor, version_of(tensor)

    def on_call(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """Note a call."""
        given = list(tensors_in((args, kwargs)))
        drawn = bool(given) and all(map(self._as_drawn, given))
        drawn = drawn and self.host.phases.current() == "forward"
        self.parts.begin(drawn)
        if not drawn or not never_changes(module, held_by(*self.host.optimizers)):
            return None
        # What is neither a plain value nor a tensor equals nothing else: who knows what is in it.
        settings = form_of((args, kwargs), lambda _: object())
        where, states, begun = caller(), states_taken(), perf_counter()

        def ended(out: Any) -> None:
            took = perf_counter() - begun
            learnt = any(tensor.requires_grad for tensor in tensors_in(out))
            if not learnt and not moved(states, states_taken()):
                self.note(module, where, took, settings)

        return ended

    def note(self, module: nn.Module, where: str | None, seconds: float, settings: Any) -> None:
        """One of a model, or of a part, that never changes."""
        self.calls.append(Call(weakref.ref(module), where, seconds, _numbers(module), settings))

    def _as_drawn(self, tensor: torch.Tensor) -> bool:
        """Whether it is all of one that the batch holds, which nobody has changed since."""
        drawn, version = self.drawn.get(_identity(tensor), (None, 0))
        return drawn is not None and version_of(drawn) == version

    def of_step(self) -> list[Call]:
        """Those of the ending step."""
        calls, self.calls = self.calls, []
        self.drawn.clear()
        return calls


def frozen(host: Host) -> Generator[None, None, Frozen | None]:
    """Steps of which the calls are noted; gives None where there is no such model."""
    module, loader = host.seam(ModuleSeam), host.seam(LoaderSeam)
    assert module is not None
    assert loader is not None
    watch = FrozenWatch(host)
    try:
        module.on_call, loader.on_draw = watch.on_call, watch.on_draw
        watch.parts.install()
        steps = yield from calls_of_steps(host, watch.of_step)
    finally:
        module.on_call = loader.on_draw = None
        watch.parts.remove()
    same = {tuple((call.model, call.numbers, call.settings) for call in calls) for calls in steps}
    if len(same) != 1:
        return None  # there is none, or its numbers change
    seconds, dearest = dear(steps)
    model = dearest.model()
    return Frozen(seconds, dearest.where, type(model).__name__, tuple(steps[-1]))


def _identity(tensor: torch.Tensor) -> tuple[int, int]:
    return address_of(tensor), tensor.numel()


@torch.no_grad()
def _numbers(module: nn.Module) -> tuple[float, ...]:
    some = [p.flatten()[:NUMBERS] for p in module.parameters()]
    real = [torch.view_as_real(p) if p.is_complex() else p for p in some]
    return tuple(float(p.double().sum()) for p in real)

"""Calls of a model that give what another call gave in the same step: on a batch that it learns from anyway,
of which nothing is learnt, or learnt from each time.

As where a metric is taken from a forward pass of its own, though the one that the loss was taken from
gave the same. A call that is learnt from is told by the gradient that its outputs get; one on other
tensors, with other settings, in another mode or of another model is none of these, and neither is one that
does not come in each step: of old policies, or of a model that is to be attacked. One that gave other
numbers, by another draw of dropout, may be there to agree with: it is none of these either.

Learnt from each time is what a network of a differential equation gives, that is called anew for each of its
derivatives: from one call all of them can be had. Such calls have the same outputs, bit for bit, which two
draws of dropout have not.

On a GPU, where a call's time is that of launching it, nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from outpace.measure.statistics import median
from outpace.seams.batch import tensors_in
from outpace.seams.host import Host
from outpace.seams.module import ModuleSeam
from outpace.seams.version_of import version_of
from outpace.seams.where import caller

STEPS = 4
"""looked at; the first only where no batch is met twice in it"""
MOST_CALLS = 64
"""a step that are told apart by what they give"""
PLAIN = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device, Enum)


@dataclass
class Call:
    """One call of a root."""

    on: tuple[Any, ...]
    """the model, its mode, and all that it was given, as it was then"""
    given: Any
    """this, so that nothing else has its identity"""
    where: str | None
    seconds: float = 0.0
    gradients: list[bool] = field(default_factory=list)
    """one for each that an output got; a tensor's hook leads to this alone, as never to the tensor"""
    gave: list[torch.Tensor] = field(default_factory=list)
    """its outputs without their graph"""

    @property
    def learnt(self) -> bool:
        """Whether it is learnt from."""
        return bool(self.gradients)

    def repeats(self, other: Call) -> bool:
        """Whether it was given just what another call was given, and gave the same."""
        return self.on == other.on and _alike(self.gave, other.gave)

    def gives_as(self, other: Call) -> bool:
        """Whether it gave what another call of the model gave, on the same numbers."""
        if self.on[:2] != other.on[:2]:
            return False
        given, before = (list(tensors_in(each.given)) for each in (self, other))
        return _alike(given, before) and _alike(self.gave, other.gave)


class Again(NamedTuple):
    """Seconds a step of calls that come to nothing, and the line that makes most of them."""

    seconds: float
    where: str | None


class Alike(NamedTuple):
    """Calls a step that are learnt from and give what another gave, and the line of the dearest."""

    calls: int
    share: float
    """of the time of all calls"""
    where: str | None


@dataclass
class CallWatch:
    """Notes the calls of a step."""

    host: Host
    calls: list[Call] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """by all calls of a step"""

    def on_call(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """Note a call of a step's."""
        if self.host.phases.current() != "forward":
            return None
        given = args, kwargs
        tensors = tuple((id(each), version_of(each)) for each in tensors_in(given))
        on = id(module), module.training, tensors, form_of(given, id)
        found = Call(on, given, caller())
        if tensors:
            self.calls.append(found)
        begun = perf_counter()

        def ended(out: Any) -> None:
            found.seconds = perf_counter() - begun
            gradients = found.gradients
            for tensor in tensors_in(out):
                found.gave.append(tensor.detach())
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: gradients.append(True))  # type: ignore[no-untyped-call]

        return ended

    def for_nothing(self) -> list[Call]:
        """Those of the ending step that nothing is learnt from, and that repeat one that is learnt from."""
        calls, self.calls = self.calls, []
        learnt = [call for call in calls if call.learnt]
        others = [call for call in calls if not call.learnt]
        found = [call for call in others if any(map(call.repeats, learnt))]
        _forget(calls)
        return found

    def alike(self) -> list[Call]:
        """Those of the ending step that are learnt from, and gave what one before them gave."""
        calls, self.calls = self.calls, []
        self.took_s.append(sum(call.seconds for call in calls))
        learnt = [call for call in calls if call.learnt]
        firsts: list[Call] = []
        found: list[Call] = []
        for call in learnt[:MOST_CALLS]:
            repeats = any(call.gives_as(first) for first in firsts)
            (found if repeats else firsts).append(call)
        _forget(calls)
        return found


def called_again(host: Host) -> Generator[None, None, Again | None]:
    """Steps of which the calls are noted; gives None where each comes to something."""
    watch = CallWatch(host)
    steps = yield from noted(watch, watch.for_nothing)
    if not steps:
        return None
    seconds, dearest = dear(steps)
    return Again(seconds, dearest.where)


def called_alike(host: Host) -> Generator[None, None, Alike | None]:
    """Steps of which the calls are noted; gives None where each gives something of its own."""
    watch = CallWatch(host)
    steps = yield from noted(watch, watch.alike)
    if not steps:
        return None
    seconds, dearest = dear(steps)
    return Alike(len(steps[-1]), seconds / median(watch.took_s), dearest.where)


def noted(
    watch: CallWatch, of_step: Callable[[], list[Call]]
) -> Generator[None, None, list[list[Call]]]:
    """`calls_of_steps` while calls are noted."""
    seam = watch.host.seam(ModuleSeam)
    assert seam is not None
    seam.on_call = watch.on_call
    try:
        return (yield from calls_of_steps(watch.host, of_step))
    finally:
        seam.on_call = None


def form_of(value: Any, other: Callable[[Any], Any]) -> Any:
    """Arguments without their tensors, to be compared: plain values as they are written, what is ``other``
    as told.
    """
    if isinstance(value, torch.Tensor):
        return torch.Tensor
    if isinstance(value, MutableMapping):
        return tuple((form_of(key, other), form_of(item, other)) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(form_of(item, other) for item in value)
    return repr(value) if isinstance(value, PLAIN) else other(value)


def _forget(calls: list[Call]) -> None:
    """What they were given and gave is the script's."""
    for call in calls:
        call.given, call.gave = None, []


def _alike(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether they are the same numbers, of which gradients are asked alike; of sparse ones nobody knows."""
    if len(some) != len(others):
        return False
    try:
        return all(
            one is other or (one.requires_grad == other.requires_grad and torch.equal(one, other))
            for one, other in zip(some, others, strict=True)
        )
    except (RuntimeError, TypeError):  # NotImplementedError too
        return False


class Timed(Protocol):
    """A call, and how long it took."""

    @property
    def seconds(self) -> float:
        """Of it."""


T = TypeVar("T", bound=Timed)


def calls_of_steps(
    host: Host, of_step: Callable[[], list[T]]
) -> Generator[None, None, list[list[T]]]:
    """What each of `STEPS` steps has of such calls, while nothing is timed; none where a step has none."""
    steps: list[list[T]] = []
    while len(steps) < STEPS:
        host.group, host.dirty = 1, True
        yield None
        steps.append(of_step())
        if not steps[-1]:
            return []
    return steps


def dear(steps: list[list[T]]) -> tuple[float, T]:
    """Seconds a step of these calls, and the one that takes longest."""
    seconds = median([sum(call.seconds for call in each) for each in steps])
    return seconds, max(steps[-1], key=lambda call: call.seconds)

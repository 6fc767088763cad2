"""Gradients that are made and zeroed again before any step: of a generator, in its discriminator's loss.

A model's call is learnt from for nothing where a backward pass goes through all of it, the gradients of
its parameters are set to zero or let go before an optimizer that has them steps, and none of them was
changed by hand meanwhile. Calls on what asks for a gradient itself are left out: the pass has to go
through these. On a GPU, where a call's time is that of launching it, nobody looks.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from outpace.measure.gradients_read import named_in_script
from outpace.seams.batch import tensors_in
from outpace.seams.held import held_by
from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.module import ModuleSeam
from outpace.seams.version_of import version_of
from outpace.seams.where import place, user_frames

STEPS = 4
MOST_STEPS = 12
"""looked at; the more where gradients of several steps are zeroed together, as of several of a critic"""
OFTEN = 3
"""steps of these in which a line's gradients have to be zeroed unused"""
FRAMES = 4
"""of the script around a call: a function that several lines call is not where they differ"""


class Zeroed(NamedTuple):
    """Seconds a step that such gradients take, the line that calls their model, and its class."""

    seconds: float
    where: str | None
    model: str


@dataclass(eq=False)
class Call:
    """One call of a root that a backward pass may go through."""

    model: str
    learnt: list[nn.Parameter]
    places: tuple[str, ...]
    """lines of the script around it, outwards"""
    step: int
    came: float = 0.0
    """when its outputs got a gradient"""
    seconds: float = 0.0
    """from then to the gradient of its last parameter; 0 before that"""
    versions: list[int] = field(default_factory=list)


class GradientWatch:
    """Follows gradients from the calls that they are of to a step, or to where they are zeroed."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.calls: list[Call] = []
        """whose gradients are not stepped yet"""
        self.zeroed: list[Call] = []
        self.used: list[Call] = []
        self.handles: list[Any] = []
        self.hooked = weakref.WeakSet[nn.Module]()
        self.replaced = Replaced()
        self.arrived: dict[int, float] = {}
        """when the gradient of each parameter (id) was there"""

    def begin(self) -> None:
        """Look from here on."""
        self.handles.append(register_optimizer_step_pre_hook(self.before_step))
        self.replaced.put(torch.autograd, "backward", self.wrap)

    def wrap(self, original: Any) -> Any:
        """``original`` with a look at gradients before it and after it."""

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.host.guard("gradients", self.before_backward)
            out = original(*args, **kwargs)
            self.host.guard("gradients", self.after_backward)
            return out

        return backward

    def end(self) -> None:
        """Leave all as it was."""
        self.replaced.put_all_back()
        for handle in self.handles:
            handle.remove()
        self.calls = []

    def on_call(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """A root is called."""
        on_learnt = any(tensor.requires_grad for tensor in tensors_in((args, kwargs)))
        learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if on_learnt or not learnt or not torch.is_grad_enabled():
            return None
        frames = itertools.islice(user_frames(sys._getframe(1)), FRAMES)
        places = tuple(str(place(frame)) for frame in frames)
        call = Call(type(module).__name__, learnt, places, self.host.steps)
        if module not in self.hooked:
            self.hooked.add(module)
            for parameter in learnt:
                see = self.gradient_there
                self.handles.append(parameter.register_post_accumulate_grad_hook(see))  # type: ignore[no-untyped-call]

        def ended(out: Any) -> None:
            def came(_: torch.Tensor) -> None:
                call.came = call.came or perf_counter()

            for tensor in tensors_in(out):
                if tensor.requires_grad:
                    tensor.register_hook(came)  # type: ignore[no-untyped-call]
            self.calls.append(call)

        return ended

    def gradient_there(self, parameter: torch.Tensor) -> None:
        """A parameter's gradient was made."""
        self.arrived[id(parameter)] = perf_counter()

    def after_backward(self) -> None:
        """How long the gradients of the calls that it went through took."""
        for call in self.calls:
            if call.came and not call.seconds:
                there = [self.arrived[id(p)] for p in call.learnt if id(p) in self.arrived]
                call.seconds = max(0.0, max(there, default=0.0) - call.came)
                call.versions = [version_of(parameter) for parameter in call.learnt]
        self.calls = [call for call in self.calls if call.seconds or not call.came]
        self.arrived = {}

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """What an optimizer steps is used, if it is still there."""
        self.host.guard("gradients", self.before_backward)
        held = held_by(optimizer)
        mine = [call for call in self.calls if any(id(p) in held for p in call.learnt)]
        self.used += [call for call in mine if call.seconds]
        self.calls = [call for call in self.calls if call not in mine]

    def before_backward(self) -> None:
        """Whether gradients that nobody has stepped were zeroed."""
        known = held_by(*self.host.optimizers, *self.host.made)
        left = []
        for call in self.calls:
            if not call.seconds or not is_zeroed(call.learnt):
                left.append(call)
            elif all(id(p) in known for p in call.learnt) and call.versions == [
                version_of(parameter) for parameter in call.learnt
            ]:
                self.zeroed.append(call)
        self.calls = left


def is_zeroed(parameters: list[nn.Parameter]) -> bool:
    """Whether none of them has a gradient any more."""
    return all(p.grad is None or not bool(p.grad.any()) for p in parameters)


def zeroed(host: Host) -> Generator[None, None, Zeroed | None]:
    """Steps of which the gradients are followed; gives None where each is used."""
    seam = host.seam(ModuleSeam)
    assert seam is not None
    if len(host.optimizers) < 2 or named_in_script():
        return None  # of one model, whose gradients it steps; or it may keep them elsewhere
    watch, first = GradientWatch(host), host.steps
    seam.on_call = watch.on_call
    watch.begin()
    try:
        while host.steps - first < MOST_STEPS:
            host.group, host.dirty = 1, True
            yield None
            open_ones = any(call.seconds for call in watch.calls)
            if host.steps - first >= STEPS and (is_often(watch.zeroed) or not open_ones):
                break
        calls = [*watch.zeroed, *(call for call in watch.calls if call.seconds)]
    finally:
        seam.on_call = None
        watch.end()
    if not is_often(watch.zeroed):
        return None
    dearest = max(watch.zeroed, key=lambda call: call.seconds)
    used = (call for call in watch.used if call.learnt[0] is dearest.learnt[0])
    elsewhere = set[str]().union(*(call.places for call in used))
    own = (each for each in dearest.places if each not in elsewhere)
    where = next(own, dearest.places[0] if dearest.places else None)
    alike = [call for call in calls if where is None or where in call.places]
    return Zeroed(sum(c.seconds for c in alike) / (host.steps - first), where, dearest.model)


def is_often(calls: list[Call]) -> bool:
    """Whether they come in each step, or nearly."""
    return len({call.step for call in calls}) >= OFTEN

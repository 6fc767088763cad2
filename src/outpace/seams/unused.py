"""Gradients that nobody uses: of parameters that no optimizer has, as of a teacher whose graph is kept.

They cost the backward pass of all of its model, and what that keeps of the forward pass. An optimizer that
was made has its parameters, though it may be stepped for the first time after many epochs. What is changed by
other means may be learnt by lines of the script; but not where it moves towards a weight that is trained, as
a mean teacher's weights do.

Such parameters ask for no gradient while a model is called, and at no other time: a model that is copied,
saved or given to another optimizer is to be learnt. Not done where activations are computed again in the
backward pass, in which they ask again.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from outpace.seams.held import held_by, learned_by
from outpace.seams.host import Host, Step
from outpace.seams.in_place_of import Replaced
from outpace.seams.recompute import RecomputeSeam
from outpace.seams.root import RootFacts
from outpace.seams.setup import Setup
from outpace.seams.version_of import version_of

FIRST = 4
"""steps after which all models of a training were called"""
LATER = (8, 9, 16, 17, 32, 33, 64, 65)
"""steps after which averages are looked for again: while a rate rises they hardly move"""
SAMPLE = 256
"""numbers of a weight that are looked at"""
FEW = 8
"""numbers of which any change may be on a way by chance"""
OTHERS = 16
"""trained weights of its shape that one is held against at the most"""
SLACK, ROUNDED = 0.05, 4.0
"""share of a change by which it may miss its direction; how much longer than what is rounded it has to be"""


class UnusedGradients:
    """Has such parameters ask for none while a Setup wants that."""

    name = "unused"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.wanted = False
        self.spared: dict[int, nn.Parameter] = {}
        """by id"""
        self.replaced = Replaced()
        self.own: RecomputeSeam | None = None
        """tells whether activations are computed again, where the host has none that does"""
        self.versions: dict[int, int] = {}
        """torch's count of changes of each parameter (by id) after the first steps"""
        self.following = Following()

    def install(self) -> None:
        """Listen for the first steps, in which they come to be known."""
        if self.on_step not in self.host.listeners:
            self.host.listeners.append(self.on_step)
        if "recompute" not in self.host.seams and self.own is None:
            self.own = RecomputeSeam(self.host)
            self.own.install()
        self.replaced.put(Optimizer, "add_param_group", self._wrap_add)

    def _wrap_add(self, original: Any) -> Any:
        seam, host = self, self.host

        @functools.wraps(original)
        def add_param_group(optimizer: Optimizer, param_group: dict[str, Any]) -> None:
            original(optimizer, param_group)
            host.guard("unused", seam.take, optimizer)

        return add_param_group

    def remove(self) -> None:
        """Have all ask for their gradients again."""
        self.replaced.put_all_back()
        if self.on_step in self.host.listeners:  # a step that failed has none any more
            self.host.listeners.remove(self.on_step)
        if self.own is not None:
            self.own.remove()
            self.own = None
        self._spare(False)

    def take(self, optimizer: Optimizer) -> None:
        """What an optimizer was given is to be learnt."""
        for held in held_by(optimizer):
            self.spared.pop(held, None)

    def reconcile(self, setup: Setup) -> None:
        """Spare them, or not, in the steps that come."""
        self._spare(setup.no_unused_gradients and not setup.checkpointed)

    def on_step(self, step: Step) -> None:
        """A step ended."""
        if step.index <= 1:
            modules = list(self.host.roots)
            self.versions = {
                id(p): version_of(p) for module in modules for p in module.parameters()
            }
        elif step.index <= FIRST or step.index in LATER:
            if self.wanted or self.host.experiments:
                self.look(step.index)
            if self.wanted:
                self._spare(True)

    def look(self, step: int) -> None:
        """Whether what changes is an average. Mostly there is nothing that no optimizer has."""
        changed: dict[int, list[nn.Parameter]] = {}
        for facts, weight, same in without_optimizer(self.host):
            if not same:
                changed.setdefault(id(facts), []).append(weight)
        if any(id(weight) not in self.following.found for weight in chain(*changed.values())):
            trained = learned_by((*self.host.optimizers, *self.host.made))
            self.following.look(step, list(changed.values()), trained)

    def _spare(self, wanted: bool) -> None:
        self.wanted = wanted
        if not wanted:
            self.spared = {}
        else:
            self.spared |= {id(parameter): parameter for _, parameter in unused(self.host)}

    def quiet(self) -> list[nn.Parameter]:
        """Those that are to ask for none in a call that is made now."""
        recompute = self.own or self.host.seam(RecomputeSeam)
        again = recompute is not None and recompute.where is not None
        if again or not torch.is_grad_enabled():
            return []
        return [parameter for parameter in self.spared.values() if parameter.requires_grad]


class Following:
    """Which weights move towards trained ones from one step to the next: averages of them.

    By `SAMPLE` numbers of each. A step's average may be of the trained weights before that step or after it.
    """

    def __init__(self) -> None:
        self.found: set[int] = set()
        """by id"""
        self.at = -1
        """the step that was looked at"""
        self.before: dict[int, torch.Tensor] = {}
        """what those had then, and what is trained"""

    @torch.no_grad()
    def look(
        self, step: int, changed: list[list[nn.Parameter]], trained: list[torch.Tensor]
    ) -> None:
        """After a step, at those that were changed, by their models."""
        now = {id(each): sampled(each) for each in chain(trained, *changed)}
        if step == self.at + 1:
            for weights in changed:
                self._judge(weights, trained, now)
        self.at, self.before = step, now

    def _judge(
        self, weights: list[nn.Parameter], trained: list[torch.Tensor], now: dict[int, torch.Tensor]
    ) -> None:
        """Those of one model. Where nothing can be told of one, the others tell."""
        alike: dict[Any, list[int]] = defaultdict(list)
        for each in trained:
            alike[each.shape, each.device].append(id(each))
        met: Counter[Any] = Counter()
        verdicts: dict[int, bool | None] = {}
        for weight in weights:
            kind, own = (weight.shape, weight.device), id(weight)
            place, met[kind] = met[kind], met[kind] + 1
            if own in self.found or own not in self.before:
                continue
            if weight.numel() < FEW:
                verdicts[own] = None
                continue
            # Most likely it is the one at the same place among those of its shape.
            near = [*alike[kind][place : place + 1], *alike[kind][:OTHERS]]
            ends = [at[each] for each in near for at in (self.before, now) if each in at]
            eps = torch.finfo(weight.dtype).eps if weight.is_floating_point() else 0.0
            verdicts[own] = towards(self.before[own], now[own], ends, eps)
        known = any(id(weight) in self.found for weight in weights)
        all_do = (known or True in verdicts.values()) and False not in verdicts.values()
        self.found |= {own for own, follows in verdicts.items() if follows or all_do}


def sampled(weight: torch.Tensor) -> torch.Tensor:
    """Some of its numbers, evenly from all of it."""
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)].float().clone()


def towards(
    before: torch.Tensor, now: torch.Tensor, ends: Iterable[torch.Tensor], eps: float
) -> bool | None:
    """Whether it is a part of the way from there to one of the ends, and not beyond, that was gone.

    ``eps``: of what the numbers are kept in. None where no more than its rounding was gone.
    """
    gone, rounding = now - before, eps * float(before.norm())
    length = float(gone.norm())
    if length <= ROUNDED * rounding:
        return None
    for end in ends:
        whole = end - before
        distance = float(whole.norm())
        if not 0.0 < length <= distance * (1 + SLACK):
            continue
        if float((gone - whole * (length / distance)).norm()) < SLACK * length + rounding:
            return True
    return False


@contextmanager
def sparing(host: Host) -> Iterator[None]:
    """Those that are spared ask for no gradient meanwhile: a model is called."""
    seam = host.seam(UnusedGradients)
    quiet = seam.quiet() if seam is not None else []
    for parameter in quiet:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in quiet:
            parameter.requires_grad = True


def unused(host: Host) -> Iterator[tuple[RootFacts, nn.Parameter]]:
    """Parameters that got a gradient, that no optimizer has, and that nothing else has changed either, but
    for an average of those that are trained.

    With their model's facts; none where no optimizer was met.
    """
    seam = host.seam(UnusedGradients)
    for facts, parameter, same in without_optimizer(host):
        if same or (seam is not None and id(parameter) in seam.following.found):
            yield facts, parameter


def without_optimizer(host: Host) -> Iterator[tuple[RootFacts, nn.Parameter, bool]]:
    """Parameters that got a gradient and that no optimizer has; whether they are as after the first step."""
    seam = host.seam(UnusedGradients)
    if not host.optimizers or seam is None:
        return
    held = held_by(*host.optimizers, *host.made)
    for module, facts in list(host.roots.items()):
        if facts.training_calls or facts.evaluations.helps:
            for parameter in module.parameters():
                got = parameter.requires_grad and parameter.grad is not None
                if got and id(parameter) not in held:
                    same = seam.versions.get(id(parameter)) == version_of(parameter)
                    yield facts, parameter, same

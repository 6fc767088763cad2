"""Gradients that nobody uses: of parameters that no optimizer has, as of a teacher whose graph is kept.

They cost the backward pass of all of its model, and what that keeps of the forward pass. An optimizer that
was made has its parameters, though it may be stepped for the first time after many epochs.

Such parameters ask for no gradient while a model is called, and at no other time: a model that is copied,
saved or given to another optimizer is to be learnt. Not done where activations are computed again in the
backward pass, in which they ask again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from outpace.seams.host import Host, Step
from outpace.seams.in_place_of import Replaced
from outpace.seams.optimizer import held_by
from outpace.seams.recompute import RecomputeSeam
from outpace.seams.root import RootFacts
from outpace.seams.setup import Setup
from outpace.seams.version_of import version_of

FIRST = 4
"""steps after which all models of a training were called"""


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
        elif self.wanted and step.index <= FIRST:
            self._spare(True)

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
    """Parameters that got a gradient, that no optimizer has, and that nothing else has changed either.

    With their model's facts; none where no optimizer was met.
    """
    seam = host.seam(UnusedGradients)
    if not host.optimizers or seam is None:
        return
    held = held_by(*host.optimizers, *host.made)
    for module, facts in list(host.roots.items()):
        if facts.training_calls or facts.evaluations.helps:
            for parameter in module.parameters():
                got = parameter.requires_grad and parameter.grad is not None
                as_it_was = seam.versions.get(id(parameter)) == version_of(parameter)
                if got and as_it_was and id(parameter) not in held:
                    yield facts, parameter

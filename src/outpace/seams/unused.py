"""Gradients that nobody uses: of parameters that no optimizer has, as of a teacher whose graph is kept.

They cost the backward pass of all of its model, and what that keeps of the forward pass. An optimizer that
was made has its parameters, though it may be stepped for the first time after many epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from outpace.seams.host import Host, RootFacts, Step
from outpace.seams.optimizer import held_by
from outpace.seams.setup import Setup

FIRST = 4
"""steps after which all models of a training were called"""


class UnusedGradients:
    """Has such parameters ask for none while a Setup wants that."""

    name = "unused"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.wanted = False
        self.spared: list[nn.Parameter] = []
        self.original: Any = None
        self.versions: dict[int, int] = {}
        """torch's count of changes of each parameter (by id) after the first steps"""

    def install(self) -> None:
        """Listen for the first steps, in which they come to be known."""
        if self.original is not None:
            return
        self.host.listeners.append(self.on_step)
        self.original = original = Optimizer.add_param_group
        seam, host = self, self.host

        @functools.wraps(original)
        def add_param_group(optimizer: Optimizer, group: dict[str, Any]) -> None:
            original(optimizer, group)
            host.guard("unused", seam.take, optimizer)

        Optimizer.add_param_group = add_param_group  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Have all ask for their gradients again."""
        if self.original is not None:
            self.host.listeners.remove(self.on_step)
            Optimizer.add_param_group = self.original  # type: ignore[method-assign]
            self.original = None
        self._spare(False)

    def take(self, optimizer: Optimizer) -> None:
        """What an optimizer was given is to be learnt."""
        held = held_by(optimizer)
        for parameter in self.spared:
            if id(parameter) in held:
                parameter.requires_grad_(True)
        self.spared = [parameter for parameter in self.spared if id(parameter) not in held]

    def reconcile(self, setup: Setup) -> None:
        """Spare them, or not, in the steps that come."""
        self._spare(setup.no_unused_gradients)

    def on_step(self, step: Step) -> None:
        """A step ended."""
        if step.index <= 1:
            modules = list(self.host.roots)
            self.versions = {id(p): p._version for module in modules for p in module.parameters()}
        elif self.wanted and step.index <= FIRST:
            self._spare(True)

    def _spare(self, wanted: bool) -> None:
        self.wanted = wanted
        for _, parameter in list(unused(self.host)) if wanted else ():
            parameter.requires_grad_(False)
            self.spared.append(parameter)
        while self.spared and not wanted:
            self.spared.pop().requires_grad_(True)


def unused(host: Host) -> Iterator[tuple[RootFacts, nn.Parameter]]:
    """Parameters that got a gradient, that no optimizer has, and that nothing else has changed either.

    With their model's facts; none where no optimizer was met.
    """
    seam = host.seams.get("unused")
    if not host.optimizers or not isinstance(seam, UnusedGradients):
        return
    held = set[int]().union(*map(held_by, {*host.optimizers, *host.made}))
    for module, facts in list(host.roots.items()):
        if facts.training_calls:
            for parameter in module.parameters():
                got = parameter.requires_grad and parameter.grad is not None
                as_it_was = seam.versions.get(id(parameter)) == parameter._version
                if got and as_it_was and id(parameter) not in held:
                    yield facts, parameter

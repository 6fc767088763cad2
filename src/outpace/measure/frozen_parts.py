"""Calls of a part of a model that never changes, as of a frozen encoder, on what a batch alone tells.

That is so where the model was called on a batch as it was drawn, no random number was drawn since, and
nothing of the model that is learnt was called before. A weight that a module holds itself may be used at any
time, so parts of such a module are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from torch import nn

from outpace.measure.called_again import form_of
from outpace.seams.batch import tensors_in
from outpace.seams.generators import moved, states_taken
from outpace.seams.held import held_by
from outpace.seams.hooks import Hook, is_scripted
from outpace.seams.host import Host
from outpace.seams.module import is_compiled
from outpace.seams.where import caller


class Begun(NamedTuple):
    """A call under way: its line, what it was given beside tensors, generators' states, and when it began."""

    where: str | None
    settings: Any
    states: dict[str, Any]
    at: float


class FrozenParts:
    """Has ``note`` told of each: part, line, seconds, and what it was given beside tensors."""

    def __init__(
        self, host: Host, note: Callable[[nn.Module, str | None, float, Any], None]
    ) -> None:
        self.host, self.note = host, note
        self.states: dict[str, Any] | None = None
        """of generators as the model was called; None where something else than the batch may tell by now"""
        self.under_way: dict[int, Begun] = {}
        """by part (id)"""
        self.handles: list[Any] = []

    def install(self) -> None:
        """Look into the models of which a part is learnt."""
        held = held_by(*self.host.optimizers)
        for root in list(self.host.roots):
            if not is_compiled(root) and any(id(p) in held for p in root.parameters()):
                self._look_into(root, held)

    def _look_into(self, module: nn.Module, held: set[int]) -> None:
        if is_scripted(module):
            return
        if any(id(p) in held for p in module.parameters(recurse=False)):
            self.handles.append(module.register_forward_pre_hook(Hook(self._learnt)))
            return
        for part in module.children():
            if never_changes(part, held) and not is_scripted(part):
                before = part.register_forward_pre_hook(Hook(self._before), with_kwargs=True)
                after = part.register_forward_hook(Hook(self._after), with_kwargs=True)
                self.handles += [before, after]
            else:
                self._look_into(part, held)

    def remove(self) -> None:
        """Look no more."""
        for handle in self.handles:
            handle.remove()
        self.handles, self.states = [], None

    def begin(self, drawn: bool) -> None:
        """A model is called; ``drawn``: on a batch as it was drawn, to be learnt from."""
        self.states = states_taken() if drawn and self.handles else None
        self.under_way.clear()

    def _learnt(self, *_: Any) -> None:
        self.states = None

    def _before(self, part: nn.Module, args: Any, kwargs: Any) -> None:
        self.host.guard("module", self._begin_part, part, args, kwargs)

    def _begin_part(self, part: nn.Module, args: Any, kwargs: Any) -> None:
        given = list(tensors_in((args, kwargs)))
        if self.states is None or not given or any(tensor.requires_grad for tensor in given):
            return
        states = states_taken()
        if not moved(self.states, states):
            settings = form_of((args, kwargs), lambda _: object())
            self.under_way[id(part)] = Begun(caller(), settings, states, perf_counter())

    def _after(self, part: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        ended = perf_counter()
        self.host.guard("module", self._end_part, part, out, ended)

    def _end_part(self, part: nn.Module, out: Any, ended: float) -> None:
        begun = self.under_way.pop(id(part), None)
        if begun is None or moved(begun.states, states_taken()):
            return
        if not any(tensor.requires_grad for tensor in tensors_in(out)):
            self.note(part, begun.where, ended - begun.at, begun.settings)


def never_changes(module: nn.Module, held: set[int]) -> bool:
    """Whether all of it is in evaluation mode, and no optimizer has any of its parameters."""
    parameters = list(module.parameters())
    return (
        bool(parameters)
        and not any(part.training for part in module.modules())
        and not any(id(parameter) in held for parameter in parameters)
    )

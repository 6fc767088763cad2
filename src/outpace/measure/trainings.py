"""Which of a script's trainings is watched: a student is trained after its teacher, say.

Another training is one of other weights, whose model is called at another line. A fold, or the next of
a few models in a loop, is more of the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from outpace.seams.held import held_by, learned_by
from outpace.seams.host import Host


class Another(NamedTuple):
    """A training that follows the one that was watched."""

    after: int
    """steps of all optimizers before it"""
    where: str
    """``file:line`` of its model's call"""
    before: str
    """the same of the one that was watched"""


class Taught:
    """The optimizer that steps, and its first weight, both weakly."""

    def __init__(self) -> None:
        self._optimizer: Any = lambda: None
        self._first: Any = None

    def note(self, optimizer: Any) -> None:
        """It steps from here on."""
        self._optimizer = weakref.ref(optimizer)
        self._first = next(map(weakref.ref, learned_by([optimizer])), None)

    @property
    def optimizer(self) -> Any:
        """None where it is gone."""
        return self._optimizer()

    @property
    def version(self) -> int | None:
        """How often the weight was written to; None where it is gone."""
        weight = None if self._first is None else self._first()
        return None if weight is None else weight._version

    def is_by(self, optimizer: Any) -> bool:
        """Whether it is that one."""
        return self._optimizer() is optimizer

    def has_none_of(self, optimizer: Any) -> bool:
        """Whether another one learns other weights."""
        return self._first is not None and not self.has_some_of(optimizer)

    def has_some_of(self, optimizer: Any) -> bool:
        """Whether another one learns the same weight."""
        first = None if self._first is None else self._first()
        return first is not None and any(one is first for one in learned_by([optimizer]))


class Trainings:
    """Tells ``turn`` of another training that begins."""

    def __init__(self, host: Host, turn: Callable[[Another], None]) -> None:
        self.host = host
        self.turn = turn
        self.where: str | None = None
        self.taught = Taught()
        host.on_takeover = self.taken_over

    def note(self) -> None:
        """A step ended."""
        optimizer = self.host.main_optimizer()
        if optimizer is None or (self.taught.is_by(optimizer) and self.where is not None):
            return
        self.taught.note(optimizer)
        self.where = where_called(self.host, optimizer)

    def taken_over(self, optimizer: Any, after: int) -> None:
        """An optimizer takes the place of the one that the steps were of; after so many of all."""
        before, where = self.where, where_called(self.host, optimizer)
        if before is None or where is None or where == before:
            return
        if self.taught.has_none_of(optimizer):
            self.turn(Another(after, where, before))


def where_called(host: Host, optimizer: Any) -> str | None:
    """Where the script calls the model that an optimizer steps; of several the largest."""
    held = held_by(optimizer)
    sizes: dict[str, int] = {}
    for module, facts in list(host.roots.items()):
        if facts.training_calls and facts.where is not None:
            size = sum(weight.numel() for weight in module.parameters() if id(weight) in held)
            sizes[facts.where] = max(size, sizes.get(facts.where, 0))
    where = max(sizes, key=lambda each: sizes[each], default=None)
    return where if where is not None and sizes[where] else None

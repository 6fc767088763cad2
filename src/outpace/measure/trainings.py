"""Which of a script's trainings is watched: a student is trained after its teacher, say.

Another training is one of other weights, whose model is called at another line. A fold, or the next of
a few models in a loop, is more of the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from outpace.seams.host import Host
from outpace.seams.optimizer import held_by


class Another(NamedTuple):
    """A training that follows the one that was watched."""

    after: int
    """steps of all optimizers before it"""
    where: str
    """``file:line`` of its model's call"""
    before: str
    """the same of the one that was watched"""


class Trainings:
    """Tells ``turn`` of another training that begins."""

    def __init__(self, host: Host, turn: Callable[[Another], None]) -> None:
        self.host = host
        self.turn = turn
        self.where: str | None = None
        self._optimizer: Any = lambda: None
        self._learnt: Any = lambda: None
        """its first weight, weakly"""
        host.on_takeover = self.taken_over

    def note(self) -> None:
        """A step ended."""
        optimizer = self.host.main_optimizer()
        if optimizer is None or (optimizer is self._optimizer() and self.where is not None):
            return
        self._optimizer, self.where = weakref.ref(optimizer), where_called(self.host, optimizer)
        self._learnt = weakref.ref(_weights(optimizer)[0])

    def taken_over(self, optimizer: Any, after: int) -> None:
        """An optimizer takes the place of the one that the steps were of; after so many of all."""
        where, learnt = where_called(self.host, optimizer), self._learnt()
        same = learnt is not None and any(weight is learnt for weight in _weights(optimizer))
        if not same and None not in (where, self.where) and where != self.where:
            assert where is not None
            assert self.where is not None
            self.turn(Another(after, where, self.where))


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


def _weights(optimizer: Any) -> list[Any]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]

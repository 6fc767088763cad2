"""A faster architecture, as suggestions: what a step would gain without a part, or with cheaper activations.

Steps of a copy are timed as they are and altered, in turns. Activations that are functions, not
modules, are not seen. What is told is their speed alone: another
architecture learns otherwise, and whether it learns as much is for its user to try. Nothing is changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from outpace.measure.statistics import paired_gain
from outpace.records.gain import Gain
from outpace.seams.alter import DEAR, DROPOUT, PassingThrough, alter
from outpace.seams.generators import generators_kept
from outpace.train.clock import done
from outpace.train.layers import set_learning
from outpace.train.objective import Objective

BLOCK, WARM = 4, 1
"""steps that are timed together, and those before them that are not"""
FEWEST, MOST = 3, 12
"""rounds"""
PARTS = 8
"""that are left out in turn, at most"""
WORTH = 1.02
"""times as fast that a suggestion has to be at least"""

Change = tuple[str, str]
AS_IT_IS: Change = ("", "")


class Suggestion(NamedTuple):
    """What could be changed, and how many times as fast a step would be."""

    change: str
    gain: Gain

    def told(self) -> str:
        """``ReLU for its activations: steps 1.12 times as fast [1.08, 1.15]``."""
        speed = f"{self.gain.speedup:.2f} times as fast [{self.gain.low:.2f}, {self.gain.high:.2f}]"
        return f"{self.change}: steps {speed}; it learns otherwise"


def suggestions(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    batches: Sequence[Any],
    now: Callable[[], float],
    seconds: float,
) -> list[Suggestion]:
    """The changes that make steps faster beyond doubt, best first. ``model`` and ``optimizer``: copies,
    which are trained; ``seconds``: to measure them in.
    """
    with generators_kept(), objective.kept():
        set_learning(model)
        drawn = itertools.cycle(batches)
        changes = [AS_IT_IS, *changes_of(model, objective, batches[0])]
        times: dict[Change, list[float]] = {change: [] for change in changes}
        ends = now() + seconds
        for number in range(MOST):
            if number >= FEWEST and now() > ends:
                break
            for change in changes:
                undo = alter(model, change) if change != AS_IT_IS else None
                try:
                    times[change].append(block(model, optimizer, objective, drawn, now))
                finally:
                    if undo is not None:
                        undo()
    found = [
        Suggestion(name_of(change, model), paired_gain(times[AS_IT_IS], times[change]))
        for change in changes[1:]
    ]
    return sorted(
        (each for each in found if each.gain.low > WORTH), key=lambda each: -each.gain.speedup
    )


def changes_of(model: torch.nn.Module, objective: Objective, batch: Any) -> Iterator[Change]:
    """What can be altered of a model: dropout, dear activations, parts that give what they are given."""
    kinds = [type(module) for module in model.modules()]
    if any(isinstance(m, DROPOUT) and m.p > 0 for m in model.modules()):
        yield "without dropout", ""
    if any(issubclass(kind, DEAR) for kind in kinds):
        yield "relu", ""
    passing = PassingThrough(model)
    try:
        objective(model, batch)
    finally:
        passing.close()
    for name in list(passing.kinds)[:PARTS]:
        yield "without", name


def block(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    batches: Iterator[Any],
    now: Callable[[], float],
) -> float:
    """Seconds of some steps."""
    began = 0.0
    for number in range(WARM + BLOCK):
        if number == WARM:
            began = done(now)
        objective(model, next(batches)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return done(now) - began


def name_of(change: Change, model: torch.nn.Module) -> str:
    """In words."""
    kind, name = change
    if kind == "relu":
        dear = {type(module).__name__ for module in model.modules() if isinstance(module, DEAR)}
        return f"ReLU for {', '.join(sorted(dear))}"
    if kind == "without":
        return f"without {name} ({type(model.get_submodule(name)).__name__})"
    return kind

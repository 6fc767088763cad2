"""What a training gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import torch

from outpace.measure.machine import describe
from outpace.records.training import Rates, Row, Seed, Training, Tried


class Choice(msgspec.Struct, frozen=True):
    """What "auto" chose beyond its default: strategies that were ``taken``, and the ``rate``; None
    leaves it to lr_finder.
    """

    taken: tuple[str, ...] = ()
    rate: float | None = None
    tried: tuple[Tried, ...] = ()


class Spent(NamedTuple):
    """What trials have taken of a training before its first step; ``steps``: as much as so many."""

    seconds: float = 0.0
    steps: float = 0.0


@dataclass(frozen=True)
class Best:
    """The best validation so far, and the weights that gave it; ``loss``: what the loss has for itself."""

    row: Row
    weights: dict[str, Any]
    loss: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """One of several seeds: its best ``row``, and the weights that gave it."""

    seed: int
    metric: float
    row: Row
    weights: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Result:
    """``what``: the class of the model. ``stopped``: why it ended. ``metric``: the best, or the lowest
    validation loss where there is no metric; ``weights``: those that gave it, or the last ones where
    nothing was validated; the model holds them too. ``time_to_target_s``: None where there was no target
    or it was not reached. ``tried``: what "auto" compared in short trials. ``kept``: the best of several
    seeds, best first. ``rates``: short trainings of lr_finder, if it has made any.
    """

    what: str
    started: str
    stopped: str
    steps: int
    epochs: int
    seconds: float
    metric_name: str | None
    larger_is_better: bool
    metric: float | None
    best: Row | None
    target: float | None
    time_to_target_s: float | None
    history: tuple[Row, ...]
    notes: tuple[str, ...]
    weights: dict[str, torch.Tensor]
    tried: tuple[Tried, ...] = ()
    kept: tuple[Kept, ...] = ()
    rates: Rates | None = None

    @property
    def session(self) -> Training:
        """All but the weights, as a record that `outpace.report.write_report` makes a report of.

        Of several ranks each has one, that differs in its own training losses: the first one's is told.
        """
        own = {k: v for k, v in vars(self).items() if k not in ("weights", "kept")}
        kept = tuple(Seed(each.seed, each.metric, each.row) for each in self.kept)
        return Training(**own, kept=kept, machine=describe())

    def told(self) -> dict[str, Any]:
        """The same as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self.session)
        return found

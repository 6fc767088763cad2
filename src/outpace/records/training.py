"""A training by `outpace.Trainer` as data: what it was, what came of it, and how it went there."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from outpace.records.counted import counted
from outpace.records.machine import Machine

OUTCOMES = {"better": ", taken", "ahead": ""}


class Row(msgspec.Struct, frozen=True):
    """A line of the history: an epoch's end, or a validation. ``seconds``: of training until then.

    ``train_loss``: mean over the steps since the row before; ``rate``: of the first group of weights.
    """

    epoch: int
    step: int
    seconds: float
    train_loss: float | None
    valid_loss: float | None = None
    metric: float | None = None
    rate: float | None = None


class Tried(msgspec.Struct, frozen=True):
    """What came of a short trial of ``what`` in the place of ``against``, ``seeds`` of each.

    ``cost`` and ``base``: what they ended at on held-out batches, mean over seeds: the loss, or the metric
    where the loss cannot tell; ``gain``: their difference as a share of what ``against`` learnt, above 0
    where ``what`` is better. None: infinite, as JSON has it. ``verdict``: better, ahead (after one seed), not
    clear, no difference, worse, or why it failed. ``seconds``: that it took, those of ``against`` included
    where they were not known.
    """

    what: str
    against: str
    verdict: str
    cost: float | None
    base: float | None
    gain: float | None
    seeds: int
    steps: int
    seconds: float
    why: str = ""

    @property
    def better(self) -> bool:
        """Beyond doubt."""
        return self.verdict == "better"

    def told(self) -> str:
        """``tried lsuv against without it (the signal fades ...): 0.41 for 0.53 after 60 steps ...``."""
        why = f" ({self.why})" if self.why else ""
        if not self.seeds:
            return f"tried {self.what}{why}: {self.verdict}"
        seeds = counted(self.seeds, "seed")
        cost, base = (math.inf if each is None else each for each in (self.cost, self.base))
        return (
            f"tried {self.what} against {self.against}{why}: {cost:.3g} for {base:.3g} after "
            f"{self.steps} steps, {seeds}: {self.verdict}{OUTCOMES.get(self.verdict, ', left out')}"
        )


class Rates(msgspec.Struct, frozen=True):
    """Short trainings of lr_finder at several learning rates, ``steps`` steps each.

    ``before``: the loss before any of them; ``points``: (rate, the loss in the end), by rate; of losses None
    is one that is not finite. ``found``: the rate that was set, and from what to what the best one lies in
    four of five trainings; None where no rate lowered the loss.
    """

    steps: int
    before: float | None
    points: tuple[tuple[float, float | None], ...]
    found: tuple[float, float, float] | None = None


class Seed(msgspec.Struct, frozen=True):
    """One of several seeds: the best metric that it came to, and the row that has it."""

    seed: int
    metric: float | None
    row: Row


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What `train --json` prints and its ``session.json`` holds (schema 1).

    ``what``: the class of the model, or the command line's MODULE:FUNCTION. ``started``: of the process
    that ended it; ``seconds``: of training, those before it was gone on with included. ``stopped``: why it
    ended. ``metric``: the best, or the lowest validation loss where there is no metric (``metric_name``
    is None then). ``best``: the row that has it, but for a mean of several seeds' weights, of which no
    row is. ``time_to_target_s``: None where there was no target, or it was not reached. ``tried``: what
    "auto" compared in short trials. ``kept``: the best of several seeds, best first. ``rates``: None where
    lr_finder has made no short trainings.
    """

    schema: int = 1
    command: Literal["train"] = "train"
    outcome: Literal["done"] = "done"
    what: str
    started: str
    seconds: float
    machine: Machine
    stopped: str
    steps: int
    epochs: int
    metric_name: str | None
    larger_is_better: bool
    metric: float | None
    best: Row | None
    target: float | None
    time_to_target_s: float | None
    history: tuple[Row, ...]
    tried: tuple[Tried, ...] = ()
    kept: tuple[Seed, ...] = ()
    notes: tuple[str, ...] = ()
    rates: Rates | None = None

    def judged_by(self, row: Row) -> float | None:
        """A row's metric, or its validation loss where there is no metric."""
        return row.valid_loss if self.metric_name is None else row.metric

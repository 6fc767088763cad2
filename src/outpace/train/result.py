"""What a training gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import torch


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


OUTCOMES = {"better": ", taken", "ahead": ""}


class Tried(msgspec.Struct, frozen=True):
    """What came of a short trial of ``what`` in the place of ``against``, ``seeds`` of each.

    ``cost`` and ``base``: what they ended at on held-out batches, mean over seeds, smaller is better;
    ``gain``: their difference as a share of what ``against`` learnt, above 0 where ``what`` is better.
    ``verdict``: better, ahead (after one seed), not clear, no difference, worse, or why it failed.
    ``seconds``: that it took, those of ``against`` included where they were not known.
    """

    what: str
    against: str
    verdict: str
    cost: float
    base: float
    gain: float
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
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return (
            f"tried {self.what} against {self.against}{why}: {self.cost:.3g} for {self.base:.3g} after "
            f"{self.steps} steps, {seeds}: {self.verdict}{OUTCOMES.get(self.verdict, ', left out')}"
        )


class Choice(msgspec.Struct, frozen=True):
    """What "auto" chose beyond its default: strategies that were ``taken``, and the ``rate``; None
    leaves it to lr_finder.
    """

    taken: tuple[str, ...] = ()
    rate: float | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Best:
    """The best validation so far, and the weights that gave it."""

    row: Row
    weights: dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """One of several seeds: its best ``row``, and the weights that gave it."""

    seed: int
    metric: float
    row: Row
    weights: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Result:
    """``stopped``: why it ended. ``metric``: the best, or the lowest validation loss where there is no
    metric; ``weights``: those that gave it, or the last ones where nothing was validated; the model
    holds them too. ``time_to_target_s``: None where there was no target or it was not reached.
    ``tried``: what "auto" compared in short trials. ``kept``: the best of several seeds, best first.
    """

    stopped: str
    steps: int
    epochs: int
    seconds: float
    metric: float | None
    best: Row | None
    time_to_target_s: float | None
    history: tuple[Row, ...]
    notes: tuple[str, ...]
    weights: dict[str, torch.Tensor]
    tried: tuple[Tried, ...] = ()
    kept: tuple[Kept, ...] = ()

    def told(self) -> dict[str, Any]:
        """All but the weights, as plain values."""
        plain = {k: v for k, v in vars(self).items() if k != "weights"}
        plain["kept"] = [{"seed": k.seed, "metric": k.metric, "row": k.row} for k in self.kept]
        found: dict[str, Any] = msgspec.to_builtins({"schema": 1, **plain})
        return found

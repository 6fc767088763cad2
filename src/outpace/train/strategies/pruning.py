"""pruning: the smallest weights become zero while the others go on learning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.compress.weights import check, mask, prunable
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

NOTE = "pruning: "
TIMES = 50
"""so often weights are chosen anew at most"""


@final
class Pruning(Strategy):
    """The smallest weights of each layer are set to zero, more and more of them, and stay so.

    What: of each weight matrix and filter bank of linear, convolutional and recurrent layers the share
    s = ``sparsity`` (1 - (1 - u)^3) is zero, where u goes from 0 to 1 between the shares ``begin`` and
    ``finish`` of the budget; in the rest the others make up for it. Weights that do not learn stay as
    they are. ``sparsity`` may be given for each weight by its name instead, such as ``shares`` of what
    `outpace.compress` found. Only weights that are as sparse as they are to be in the end are kept as
    the best.
    Helps: where a file is to be small: zeros are next to nothing in a compressed one, and a net that
    learns meanwhile bears more of them than one that is pruned at the end.
    Harms: a net that is small for its task already. It makes no step and no call faster: torch computes
    with zeros as with other numbers (removing channels does, see `outpace.compress`).
    Source: Zhu and Gupta 2017, arXiv 1710.01878, equation 1; Han et al. 2015, arXiv 1506.02626.
    """

    name = "pruning"
    sets = ("the weights that are kept",)
    needs = ("an end",)
    raises_loss = True
    clashes = {  # noqa: RUF012
        "early_stopping": "it may end the training before all is pruned",
        "target": "a target that is met before all is pruned would end the training",
    }

    def __init__(
        self,
        sparsity: float | Mapping[str, float] = 0.8,
        *,
        begin: float = 0.1,
        finish: float = 0.7,
    ) -> None:
        if not 0.0 <= begin < finish <= 1.0:
            raise UsageError(
                f"begin={begin:g}, finish={finish:g}", "they are shares of the budget, in order"
            )
        self.sparsity, self.first, self.last = sparsity, begin, finish
        self.shares: dict[str, float] = {}
        self.weights: dict[str, nn.Parameter] = {}
        self.time = 0
        """how often weights were to be chosen by now"""
        self.masks: dict[str, torch.Tensor] = {}
        """of the weights that are not zero"""

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.last

    def prepare(self, run: Run) -> None:
        """See what is to be pruned."""
        found, given = prunable(run.module), self.sparsity
        learn = [name for name, weight in found.items() if weight.requires_grad]
        self.shares = dict(given) if isinstance(given, Mapping) else dict.fromkeys(learn, given)
        check(self.shares, found)
        if not self.shares:
            raise UsageError(
                "pruning: the model has no layer that learns and is pruned", "leave it out"
            )
        self.weights = {name: found[name] for name in self.shares}
        self.time, self.masks = 0, {}

    def begin(self, run: Run) -> None:
        """A checkpoint has told them as a whole."""
        self.masks = run.placed(self.masks, self.weights)

    def step_end(self, run: Run) -> None:
        """Choose weights anew where it is time; the optimizer has moved those that are zero."""
        passed = (run.clock.used - self.first) / (self.last - self.first)
        time = int(TIMES * min(1.0, max(0.0, passed)))
        if time > self.time:
            reached = 1.0 - (1.0 - time / TIMES) ** 3
            self.time = time
            shares = {name: reached * share for name, share in self.shares.items()}
            self.masks = {
                name: run.by_whole(weight, partial(mask, share=shares[name]))
                for name, weight in self.weights.items()
            }
            run.best = None  # it has fewer zeros
        with torch.no_grad():
            for name, kept in self.masks.items():
                self.weights[name].mul_(kept)

    def end(self, run: Run) -> None:
        """Say what came of it."""
        zeros = sum(int(run.by_whole(each, _zeros)) for each in self.weights.values())
        total = sum(weight.numel() for weight in self.weights.values())
        # What an earlier end said, from which training went on.
        run.notes[:] = [each for each in run.notes if not each.startswith(NOTE)]
        short = "" if self.time == TIMES else ", as training ended before all was pruned"
        run.note(f"{NOTE}{zeros / total:.1%} of {total:,} weights are zero{short}")

    def state_dict(self) -> dict[str, Any]:
        """Which weights are zero."""
        return {"time": self.time, "masks": dict(self.masks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; after `prepare`. A roll-back makes no weight come back that was pruned."""
        if state["time"] < self.time:
            with torch.no_grad():
                for name, kept in self.masks.items():
                    self.weights[name].mul_(kept)
            return
        self.time = state["time"]
        self.masks = {n: kept.to(self.weights[n].device) for n, kept in state["masks"].items()}


def _zeros(weight: torch.Tensor) -> torch.Tensor:
    return (weight == 0).sum()

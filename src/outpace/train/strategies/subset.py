"""subset: training begins on a part of the data, and grows to all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.serve.order import permuted
from outpace.train.strategies.base import Drawing
from outpace.train.strategies.repeat_factor import Labels, labels_of, plain

if TYPE_CHECKING:
    from outpace.train.run import Run

JOINING = 2**63
"""in the place of an epoch: the order in which samples join"""
SLACK = 1e-3
"""that the factors sum up to less than the samples are, as the sum is rounded up"""


@final
class Subset(Drawing):
    """A part of the data, each sample several times an epoch, grows to all of it.

    What: the share of the samples that an epoch is drawn from is ``first`` at the begin and grows with
    the budget that is used, in a line, to all of them at ``until``; an epoch is as long as ever. Which
    samples come first is random, from the seed alone, but that each class has as many, as long as it
    has any. ``labels``: of each sample its class; else what the data set tells, else chance alone.
    Helps: where a sample is dear the first time only (fetched, decoded and kept): the first epochs
    cost a part; where classes are imbalanced: the rare ones are learnt early.
    Harms: a part that is too small is learnt by heart before the rest comes. Samples join where an epoch
    begins: of a budget that is less than some epochs they do so late. Where all samples are as cheap each
    time, and classes as frequent as each other, nothing is gained.
    Source: Bengio et al. 2009, "Curriculum learning"; the course: Hacohen and Weinshall 2019, arXiv
    1904.03626 (a random order as their control); repeated small sets first: Charton and Kempe 2024,
    arXiv 2410.07041.
    """

    name = "subset"
    sets = ("the order of samples",)
    needs = ("an end",)

    def __init__(
        self, first: float = 0.25, *, until: float = 0.5, labels: Labels | None = None
    ) -> None:
        if not (0.0 < first < 1.0 and 0.0 < until <= 1.0):
            raise UsageError(f"first={first:g}, until={until:g}", "both are shares")
        self.first, self.until, self.labels = first, until, labels
        self.joining = np.empty(0, dtype=np.int64)
        """samples, those that come first before"""
        self.taken = 0
        """of them an epoch is drawn from so many; 0: none was begun"""
        self.begun = False
        self.said = ""

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.until

    def prepare(self, run: Run) -> None:
        """The order in which samples join."""
        loader = self.loader_of(run)
        self.taken, self.begun = 0, False
        count = len(loader.source)
        order = permuted(np.arange(count), count, loader.order.seed, JOINING)
        classes = self.classes(loader)
        self.joining = balanced(order, classes) if classes is not None else order
        way = "chance" if classes is None else "as many of each class"
        self.said = (
            f"subset: {self.first:.0%} of {count:,} samples at first ({way}), all from {self.until:.0%} "
            "of the budget on"
        )

    def classes(self, loader: Loader) -> NDArray[np.int64] | None:
        """Of each sample; None where they are not to be seen."""
        given = self.labels
        try:
            labels = np.asarray(plain(given if given is not None else labels_of(loader.source)))
        except (UsageError, ValueError):
            labels = np.empty(0)
        if labels.shape == (len(loader.source),) and labels.dtype.kind in "biuUS":
            return np.unique(labels, return_inverse=True)[1]
        if given is None:
            return None
        raise UsageError(
            f"subset: labels= are not one class for each of {len(loader.source)} samples",
            "give a number or a name for each sample, or leave them out",
        )

    def begin(self, run: Run) -> None:
        """Say so."""
        epoch = (run.train.length or 0) / run.steps_ahead
        if epoch > self.until:
            raise UsageError(
                f"subset takes more samples from epoch to epoch, and one is {epoch:.0%} of the training: "
                f"there would not be all of them from {self.until:.0%} on",
                "leave it out, or train for more epochs",
            )
        self.begun = True
        run.note(self.said)

    def epoch_begin(self, run: Run) -> None:
        """Take more."""
        share = self.first + (1.0 - self.first) * min(1.0, run.clock.used / self.until)
        self.take(max(1, round(share * len(self.joining))))

    def take(self, count: int) -> None:
        """Draw from so many."""
        assert self.loader is not None
        self.taken = count
        total = len(self.joining)
        factors = np.zeros(total)
        factors[self.joining[:count]] = (total - SLACK) / count
        self.loader.repeat(factors)

    def state_dict(self) -> dict[str, Any]:
        """How many it draws from."""
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; a roll-back leaves the epoch at hand as it is."""
        if not self.begun and self.loader is not None and state["taken"]:
            self.take(state["taken"])


def balanced(order: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples in turns of one from each class, within a class in the order that they had."""
    own = classes[order]
    by_class = np.argsort(own, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(own))])
    turn = np.empty(len(order), dtype=np.int64)
    turn[by_class] = np.arange(len(order)) - starts[own[by_class]]
    return order[np.argsort(turn, kind="stable")]

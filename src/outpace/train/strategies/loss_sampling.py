"""loss_sampling: samples that are being learnt come more often than those that are learnt."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import torch

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.losses import TOGETHER
from outpace.train.strategies.base import Drawing
from outpace.train.strategies.class_prior import heeded, ignored
from outpace.train.unreduced import Each, logarithm, unreduced, unweighted

if TYPE_CHECKING:
    from outpace.train.run import Run

SLACK = 1e-3
"""that the factors sum up to less than the samples are, as the sum is rounded up"""


@final
class LossSampling(Drawing):
    """Samples that can be learnt and are not yet come more often, by their losses in training.

    What: of a loss that is -ln p, a sample's score is p (1 - p), -ln p the mean over the last epoch that
    it was in: next to nothing where it is learnt, and where the model is sure of something else, as with
    a wrong label. With ``by="loss"`` it is the loss itself, of any kind. From the second epoch on a
    sample comes ``least`` times an epoch, and more in proportion to its score, at most about ``most``
    times; an epoch is as long as ever. Losses are those of the steps: the model is not called for them.
    p is told without a loss's own weights and label smoothing.
    Helps: where much of the data is easy or alike, and training takes many epochs: steps go to what is
    still to be learnt. By loss it is faster where all labels are right.
    Harms: in few epochs, as the first is spent on looking. By loss, samples that are labelled wrongly
    come the most. What the model tells of how frequent classes are is off. Augmentation and dropout
    make losses noisy, and scores with them.
    Source: Loshchilov and Hutter 2016, arXiv 1511.06343 (online batch selection, by loss); Chang,
    Learned-Miller and McCallum 2017, arXiv 1704.07433 (Active bias, section 3.3: p (1 - p)).
    """

    name = "loss_sampling"
    sets = ("the order of samples", "the loss")
    raises_loss = True
    clashes = {  # noqa: RUF012
        "accumulation": "it has several batches drawn before the first is learnt from, so that it is not "
        "known whose losses are told"
    }

    def __init__(
        self,
        by: Literal["learnability", "loss"] = "learnability",
        *,
        least: float = 0.3,
        most: float = 4.0,
    ) -> None:
        if by not in ("learnability", "loss") or not 0.0 < least <= 1.0 <= most:
            raise UsageError(
                f"by={by!r}, least={least:g}, most={most:g}",
                "by is 'learnability' or 'loss', least above 0 and at most 1, most 1 or more",
            )
        self.by, self.least, self.most = by, least, most
        self.world, self.begun = 1, False
        self.device = torch.device("cpu")
        self.scores = self.sums = self.counts = torch.empty(0)
        """of each sample: its score; and of the epoch at hand the sum of its losses and how many they
        are, on this rank
        """
        self.factors = torch.empty(0)
        """how often samples come in the epoch at hand; none before the first"""
        self.losses = self.known = torch.empty(0)
        """of each sample of a batch: the mean loss of its targets, and whether it has any that counts"""
        self.pending: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        """indices and both of these that were not read yet: to read each would have the device wait"""

    def prepare(self, run: Run) -> None:
        """Have losses told sample by sample."""
        loader, self.world, self.device = self.loader_of(run), run.world, run.device
        loss = run.objective.loss
        if self.by == "learnability" and not logarithm(loss):
            raise UsageError(
                f"loss_sampling by learnability: it is not known whether {loss!r} is -ln p",
                "give loss=F.cross_entropy or the like, or LossSampling('loss')",
            )
        self.scores = torch.full((len(loader.source),), math.nan, dtype=torch.float64)
        self.sums, self.counts = torch.zeros_like(self.scores), torch.zeros_like(self.scores)
        self.factors, self.begun = torch.empty(0), False
        self.pending.clear()
        told = unweighted(loss) if self.by == "learnability" else loss
        run.objective.learning = partial(self.learning, loss, unreduced(told, self.name))

    def learning(self, loss: Any, each: Each, outputs: Any, targets: Any) -> torch.Tensor:
        """The loss itself, whose mean may be weighted or leave targets out; those of single targets are
        kept for the event `loss`.
        """
        with torch.no_grad():
            losses = each(outputs, targets)
            known = heeded(losses, targets, ignored(loss)).reshape(len(losses), -1)
            total = losses.reshape(len(losses), -1).where(known, 0.0).sum(1)
            self.losses, self.known = total / known.sum(1).clamp(min=1), known.any(1)
        found: torch.Tensor = loss(outputs, targets)
        return found

    def begin(self, run: Run) -> None:
        """From here on a roll-back leaves it alone: what losses are is known from later."""
        self.begun = True

    def loss(self, run: Run, loss: torch.Tensor) -> None:
        """Note the losses of the batch's samples."""
        assert self.loader is not None
        indices = torch.from_numpy(self.loader.indices)
        if len(indices) == len(self.losses):  # else some were skipped
            self.pending.append((indices, self.losses, self.known))
        if len(self.pending) == TOGETHER:
            self.read()

    def read(self) -> None:
        """Add what is pending."""
        if self.pending:
            indices, losses, known = (torch.cat(each) for each in zip(*self.pending, strict=True))
            self.pending.clear()
            self.sums.index_add_(0, indices, losses.cpu().double())
            self.counts.index_add_(0, indices, known.cpu().double())

    def epoch_begin(self, run: Run) -> None:
        """Draw by what the last epoch showed."""
        assert self.loader is not None
        self.read()
        sums, counts = self.of_all_ranks()
        self.sums, self.counts = torch.zeros_like(sums), torch.zeros_like(counts)
        means = sums / counts
        told = torch.exp(-means)
        scores = means if self.by == "loss" else told * (1.0 - told)
        self.scores = torch.where(counts > 0, scores, self.scores)
        self.factors = by_scores(self.scores, self.least, self.most)
        self.loader.repeat(self.factors.numpy())

    def of_all_ranks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums and counts."""
        if self.world == 1:
            return self.sums, self.counts
        both = ranks.summed([*self.sums.tolist(), *self.counts.tolist()], self.device)
        sums, counts = torch.tensor(both, dtype=torch.float64).chunk(2)
        return sums, counts

    def state_dict(self) -> dict[str, Any]:
        """What is known of each sample, by all ranks."""
        self.read()
        sums, counts = self.of_all_ranks()
        return {
            "scores": self.scores,
            "sums": sums,
            "counts": counts,
            "factors": self.factors,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; before `begin`."""
        if self.begun:
            return
        self.scores = state["scores"].clone()
        known = 1.0 if ranks.leads() else 0.0  # once, of all ranks
        self.sums, self.counts = known * state["sums"], known * state["counts"]
        self.factors = state["factors"].clone()
        if self.loader is not None and self.factors.numel():
            self.loader.repeat(self.factors.numpy())


def by_scores(scores: torch.Tensor, least: float, most: float) -> torch.Tensor:
    """How often each sample comes in an epoch; once where nothing is known.

    A score that is not known, or not finite, is taken for the mean of the others.
    """
    scores = torch.where(scores.isfinite(), scores, math.nan)
    mean = scores.nanmean()
    share = torch.ones_like(scores)
    if mean > 0:
        share = (torch.where(scores.isnan(), mean, scores) / mean).clamp(0.0, most)
    found = least + (1.0 - least) * share
    return found * ((len(found) - SLACK) / found.sum())

"""Rows of the table of bottlenecks: what is computed and comes to nothing, or need not be so dear."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose.costs import (
    KEPT,
    LEAST_USELESS,
    Cost,
    alike_seconds,
    clocked_in_step,
    compute_cost,
    constant_seconds,
    cost_by_arm,
    double_seconds,
    ignored_seconds,
    of_step,
    sliced_seconds,
    untouched_seconds,
)
from outpace.diagnose.told import Told, in_ms
from outpace.records.evidence import Evidence

AGAIN_ERROR = 0.2
"""relative error of what a few calls took, while each was looked at"""
LEAST_DOUBLED = 0.03
"""share of computing that float64 in a part of the model costs, from which on it is told"""


def _about(evidence: Evidence, seconds: float) -> Cost:
    """Seconds of a step by what some of one step's operators took."""
    return of_step(evidence, seconds, 0.7 * seconds, 1.2 * seconds, "predicted")


def computing_again(evidence: Evidence) -> Iterator[Told]:
    """Activations that are thrown away and computed again, though there is room to keep them."""
    cost = cost_by_arm(evidence, KEPT)
    if cost is not None:
        yield Told(
            cost,
            evidence.compute.recomputed_where,
            "activations are thrown away and computed again in the backward pass, which takes "
            f"{in_ms(cost.seconds, cost.whole_s)} of a step: kept, they take at most "
            f"{evidence.compute.recomputed_bytes / 2**30:.2f} GiB more, and there is room for that",
        )


def called_again(evidence: Evidence) -> Iterator[Told]:
    """A model called on its batch once more, for what its first call gave."""
    seconds = evidence.compute.again_s
    if seconds:
        cost = clocked_in_step(evidence, seconds, AGAIN_ERROR)
        yield Told(
            cost,
            evidence.compute.again_where,
            f"the model is called once more on the batch that it learns from, which takes "
            f"{in_ms(seconds, cost.whole_s)} of a step, and nothing is learnt from what comes of it: what "
            "the loss is taken from does for a metric too",
        )


def called_alike(evidence: Evidence) -> Iterator[Told]:
    """A model called several times on the same, for several derivatives, say."""
    (least, usual, most), calls = alike_seconds(evidence), evidence.compute.alike
    if usual:
        cost = of_step(evidence, usual, least, most, "predicted")
        several = calls > 1
        yield Told(
            cost,
            evidence.compute.alike_where,
            f"{calls} of the model's calls in a step {'give' if several else 'gives'} what another one gave, "
            f"and {'are' if several else 'is'} learnt from too: some {in_ms(usual, cost.whole_s)} of a step. "
            "Call it once, and take the loss and all derivatives from that",
        )


def constant_calls(evidence: Evidence) -> Iterator[Told]:
    """A model that never changes, called anew on the same samples in each epoch."""
    seconds, compute = constant_seconds(evidence), evidence.compute
    if seconds:
        cost = clocked_in_step(evidence, seconds, AGAIN_ERROR)
        yield Told(
            cost,
            compute.frozen_where,
            f"{compute.frozen_of} never changes in the steps that were seen, and the samples that it is "
            f"called on are the same in each epoch: {in_ms(compute.frozen_s, cost.whole_s)} of a step go to "
            "what it gave before; what it gives for each sample can be kept from the first epoch on",
        )


def zeroed_gradients(evidence: Evidence) -> Iterator[Told]:
    """Gradients that one model's loss makes of another, which are zeroed before that is stepped."""
    compute = evidence.compute
    if compute.zeroed_s:
        cost = clocked_in_step(evidence, compute.zeroed_s, AGAIN_ERROR)
        yield Told(
            cost,
            compute.zeroed_where,
            f"a backward pass goes through {compute.zeroed_of} and makes its gradients, which takes "
            f"{in_ms(compute.zeroed_s, cost.whole_s)} of a step, and they are zeroed before any optimizer "
            "steps: call it under torch.no_grad() there, or detach() what it gives",
        )


def doubled(evidence: Evidence) -> Iterator[Told]:
    """A part of a model that computes in float64 by accident, as what came from NumPy does."""
    compute = evidence.compute
    least, usual, most = double_seconds(evidence)
    if usual >= LEAST_DOUBLED * compute_cost(evidence):
        cost = of_step(evidence, usual, least, most, "predicted")
        by = f", by {compute.double_by}" if compute.double_by else ""
        tried = compute.double_spared
        gives = (
            "about twice as fast" if tried is None else f"in {1 - tried:.0%} of that time, as tried"
        )
        yield Told(
            cost,
            compute.double_where,
            f"numbers come to be in float64 here{by}, in which {in_ms(compute.double_s, cost.whole_s)} "
            "of a step are computed, though the model's weights are not: with .float() on what is, half the "
            f"bytes are moved, {gives}",
        )


def sliced_in_loops(evidence: Evidence) -> Iterator[Told]:
    """Slices that a loop takes of one tensor, each with a gradient as large as all of it."""
    seconds, compute = sliced_seconds(evidence), evidence.compute
    if seconds >= LEAST_USELESS * compute_cost(evidence):
        cost = _about(evidence, seconds)
        yield Told(
            cost,
            compute.sliced_where,
            f"a loop takes {compute.sliced} slices of one tensor, the gradient of each is made as large as "
            f"all of it, and they are added up: that takes {in_ms(seconds, cost.whole_s)} of a step. "
            "unbind() before the loop (split() for ranges) gives the same slices, and one gradient for all",
        )


def ignored_targets(evidence: Evidence) -> Iterator[Told]:
    """Scores of positions that the loss is told to ignore."""
    seconds, compute = ignored_seconds(evidence), evidence.compute
    if seconds:
        cost = _about(evidence, seconds)
        yield Told(
            cost,
            compute.ignored_where,
            f"the loss ignores {100 * compute.ignored:.0f} % of its targets, and all are scored: that "
            f"takes {in_ms(seconds, cost.whole_s)} of a step in the output layer, the loss and their "
            "gradients. Take the positions that count before the output layer",
        )


def unused_gradients(evidence: Evidence) -> Iterator[Told]:
    """Gradients of parameters that nobody steps."""
    cost = cost_by_arm(evidence, "no_unused_gradients")
    if cost is not None:
        yield Told(
            cost,
            evidence.compute.unused_where,
            f"gradients of {evidence.compute.unused} parameters that no optimizer has take "
            f"{in_ms(cost.seconds, cost.whole_s)} of a step: their model is to be called under "
            "torch.no_grad(), or to have requires_grad_(False)",
        )


def untouched_rows(evidence: Evidence) -> Iterator[Told]:
    """An optimizer that steps all rows of embeddings, of which a batch looks up a few."""
    seconds, share = untouched_seconds(evidence), evidence.untouched
    if seconds >= LEAST_USELESS * compute_cost(evidence):
        cost = _about(evidence, seconds)
        yield Told(
            cost,
            evidence.compute.optimizer_where,
            f"{100 * share:.0f} % of the parameters are rows of embeddings that a batch looks up none of: to "
            f"make their gradients, which are zeros, and to step them takes "
            f"{in_ms(seconds, cost.whole_s)} of a step. nn.Embedding(sparse=True) with "
            "torch.optim.SparseAdam, or with SGD, leaves them as they are, where Adam goes on moving them",
        )

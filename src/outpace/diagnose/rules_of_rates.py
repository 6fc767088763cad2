"""Rules of learning health: numbers that are not finite, and steps that are too large or too small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from outpace.diagnose.losses import (
    FEWEST_LOSSES,
    RISE,
    fell_and_stays,
    finite,
    first_and_last,
    guesses,
    hardly_changes,
    is_noise,
    never_finite_again,
    samples_seen,
)
from outpace.records.evidence import Evidence
from outpace.records.finding import Learning
from outpace.records.health import HUGE

LARGE_UPDATE = 0.1
"""|change| / |weights| a step; 1e-3 is usual, 1e-4 to 1e-2 healthy (calibrated)"""
SPIKE = 3.0
"""times the first losses"""
LEAP = 10.0
"""times the very first one, which may be low by chance"""
FEW_SAMPLES = 8
"""in a batch: the mean of so many squares of normal noise is over three times its median in 0.5 % of batches,
that of 4 in 4 %, and a single one in 24 %"""
MOST_SPIKES = 0.02
"""of the losses: a rate that is too high makes more than one of them"""
EXPLODED = 100.0
"""|gradient| / |weights| before the first step: 0.01 to 1 as a rule, of a loss summed over a batch a hundred
times that (calibrated)"""
GONE_FOR, GONE = 0.25, 0.4
"""of the steps so far, and of the whole run, for which a rate is nothing: nobody wants that"""


def not_a_number(evidence: Evidence) -> Iterator[Learning]:
    """The loss became NaN or infinite: if it stays so, nothing is learned from there on."""
    health, values = evidence.health, evidence.loss.values
    if evidence.loss.first_bad_step is None:
        return
    bad = [index for index, value in enumerate(values) if value is None]
    first = f"the gradient of {health.bad_gradient} is the first that is not"
    made = health.bad_made or (first if health.bad_gradient else None)
    because = f"; {made}" if made else ""
    anomaly = "torch.autograd.set_detect_anomaly(True) names the operation that made it"
    step = evidence.loss.first_bad_step
    if never_finite_again(evidence):
        yield Learning(
            "nan",
            "critical",
            f"the loss is not a finite number from step {step} on{because}",
            f"lower the learning rate or clip gradients; {anomaly}",
        )
    else:
        some = f"{len(bad)} of {len(values)} losses, the first at step {step}, are"
        yield Learning(
            "nan",
            "warn",
            f"{some if bad else 'a loss is'} not finite, and the training went on{because}",
            "nothing is wrong with a few steps that a GradScaler skips until its scale suits; else "
            f"clip gradients; {anomaly}",
        )


def exploding(evidence: Evidence) -> Iterator[Learning]:
    """Gradients grow on their way back, as through many time steps, before there was a step to blame: the
    loss overshoots with any usual rate. Not where it falls all the same, as a sum over pixels does with Adam.
    """
    health, first = evidence.health, evidence.health.first_gradient
    if first is None or first < EXPLODED or evidence.run.from_step:
        return
    if never_finite_again(evidence) or _overshot(evidence) is not None:
        large = f"{first:.0e} times the size of the weights" if first < HUGE else "not finite"
        yield Learning(
            "exploding_gradients",
            "critical",
            f"before the first step the gradients were {large}"
            + (f", those of {health.first_where} the largest" if health.first_where else ""),
            "clip gradients (torch.nn.utils.clip_grad_norm_); scale inputs and targets to about 1; normalise "
            "layers; initialise recurrent weights orthogonally; take the mean of losses, not their sum",
        )


def rate_too_high(evidence: Evidence) -> Iterator[Learning]:
    """Steps overshoot: the loss spikes or rises while the weights change by a large part."""
    health, values = evidence.health, finite(evidence)
    ratio = max(health.first_update_ratio or 0.0, health.update_ratio or 0.0)
    if len(values) < 5 or not math.isfinite(ratio) or ratio < LARGE_UPDATE:
        return
    if any(exploding(evidence)):
        return  # which says why
    overshot = _overshot(evidence)
    if never_finite_again(evidence) or overshot is not None:
        first, last = overshot or (median(values[:5]), first_and_last(values)[1])
        yield Learning(
            "learning_rate_too_high",
            "critical",
            f"a step changes the weights by {ratio:.0%} of their size, and the loss went from "
            f"{first:.3g} to {last:.3g}, at most {max(values):.3g}",
            "lower the learning rate tenfold; warm it up; clip gradients",
        )


def _overshot(evidence: Evidence) -> tuple[float, float] | None:
    """Where a loss that spikes or rises came from, and where it is.

    That of a policy, a sum over an episode, may grow as it learns to last.
    """
    health, values = evidence.health, finite(evidence)
    if len(values) < 5 or health.acts:
        return None
    # One loss is noise. A net that its first steps have killed gets no gradients: later updates are 0.
    first, last = median(values[:5]), first_and_last(values)[1]
    # Of a few samples single losses are so high without an overshoot. Of more a rate that is too high makes
    # the noise outweigh the gradient too.
    alone = is_noise(health) and health.batch < FEW_SAMPLES
    leaps = not alone and 0 < LEAP * values[0] < median(values[1:6])
    high = sum(0 < SPIKE * first < value for value in values[5:])
    spikes = not alone and high > max(1, MOST_SPIKES * len(values))
    start = max(values[0], first)
    rises = last > start + (RISE - 1) * abs(start)
    rises = rises and (health.update_ratio or 0.0) >= LARGE_UPDATE
    return (values[0] if leaps else first, last) if leaps or spikes or rises else None


def rate_too_low(evidence: Evidence) -> Iterator[Learning]:
    """Weights hardly change, and the loss with them; not that of a model that has learnt."""
    values = finite(evidence)
    if not hardly_changes(evidence) or evidence.health.warming_up or len(values) < 20:
        return
    if evidence.health.need_not_fall:
        return  # the loss of adversaries, or of a policy, need not fall
    first, last = first_and_last(values)
    crawls = 0.95 if guesses(evidence, last) else 0.99
    if last > crawls * first and fell_and_stays(evidence) is None:
        yield Learning(
            "learning_rate_too_low",
            "warn",
            f"a step changes the weights by {evidence.health.update_ratio:.0e} of their size, and in "
            f"{samples_seen(evidence)} the loss went from {first:.4g} to {last:.4g}",
            "raise the learning rate tenfold or more; 1e-3 of a weight's size a step is usual",
        )


def rate_gone(evidence: Evidence) -> Iterator[Learning]:
    """A schedule has brought the rate to nothing long before the training ends, as one for epochs that is
    stepped at each batch.
    """
    gone, run = evidence.health.rate_gone, evidence.run
    steps = evidence.steps.count
    total = steps if run.finished else run.total_steps
    if gone is None or total is None:
        return
    largest, now, since = gone
    to_come = max(0, total - steps)
    if since >= max(FEWEST_LOSSES, GONE_FOR * steps) and since + to_come > GONE * total:
        and_more = f"; {to_come:,} are to come" if to_come else ""
        yield Learning(
            "learning_rate_gone",
            "critical",
            f"the learning rate is {now:.1g}, of {largest:.1g} at its largest, and has been next to nothing "
            f"for {since:,} of {steps:,} steps{and_more}",
            "see how often the schedule is stepped: with steps of epochs it goes after each epoch, not each "
            "batch",
        )

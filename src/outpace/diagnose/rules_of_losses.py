"""Rules of learning health: what the course of the losses tells, in training and in validation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import mean, median, stdev

from outpace.diagnose.losses import (
    ABOUT,
    FEWEST_LOSSES,
    NO_FALL,
    RISE,
    error_of_difference,
    fell_and_stays,
    finite,
    first_and_last,
    hardly_changes,
    is_noise,
    may_fall_later,
    samples_seen,
    stays,
)
from outpace.diagnose.rules_of_rates import rate_gone
from outpace.records.evidence import Evidence
from outpace.records.finding import Learning

HEALTHY_UPDATE = 1e-4
MANY = 50_000
"""samples, after which a loss that stays that of guessing is told whatever the epoch"""
PATIENCE = 3
"""validations since the best one"""
NOISY = 0.25
"""spread of the loss from step to step, of the loss (calibrated)"""
SLOWER = 0.5
"""of what a loss fell by before: if it may still fall by so much, it has not stopped"""


def learns_nothing(evidence: Evidence) -> Iterator[Learning]:
    """Weights change as they should, and the loss stays that of guessing: labels may not belong to
    the inputs. Elsewhere a loss stays too, as of a model that was trained before.

    Not within an epoch or two of few samples: a small BERT made anew guessed for one of 6,000 texts, and
    then learnt.
    """
    values, chance = finite(evidence), _chance(evidence)
    if evidence.health.update_ratio is None or hardly_changes(evidence):
        return
    if evidence.health.warming_up or evidence.health.need_not_fall or len(values) < FEWEST_LOSSES:
        return  # a warm-up, adversaries or a policy: such a loss need not fall
    if may_fall_later(evidence) and evidence.loss.samples[-1] < MANY:
        return
    third = len(values) // 3
    early, late = values[:third], values[-third:]
    falls = mean(early) - mean(late) >= 3 * error_of_difference(early, late)
    guesses = (1 - NO_FALL) * chance < mean(late) < (1 + ABOUT) * chance
    if min(values) > 0 and guesses and stays(early, late) and not falls:
        yield Learning(
            "learns_nothing",
            "warn",
            f"the loss stays at {mean(late):.3g} over {samples_seen(evidence)}, which is guessing among "
            f"{evidence.health.classes} classes",
            "see that labels belong to their inputs and that a model can overfit one batch",
        )


def plateau(evidence: Evidence) -> Iterator[Learning]:
    """The loss fell, and then stays far from zero for as long again, and validations with it.

    Not within an epoch or two: it may fall where samples are met again, as that of large embeddings does.
    """
    fell = fell_and_stays(evidence)
    if any(rate_gone(evidence)):
        return  # which says why
    if fell is not None and not _validates_better(evidence) and not may_fall_later(evidence):
        first, late = fell
        ratio = evidence.health.update_ratio
        advice = "lower the learning rate (drop it, or let it go to zero on a schedule)"
        if ratio is not None and ratio < HEALTHY_UPDATE:
            advice = (
                f"see whether the learning rate went down too early, as a step changes the weights by "
                f"{ratio:.0e} of their size; where it is meant to be at its end, stop there"
            )
        yield Learning(
            "plateau",
            "warn",
            f"the loss fell from {first:.3g} to {late:.3g} and stays there for the later half "
            f"of {samples_seen(evidence)}",
            f"if your validation metric stays as well, {advice}",
        )


def overfitting(evidence: Evidence) -> Iterator[Learning]:
    """The training loss falls and the validation loss rises, by more than it changes from one to the next:
    the best of many small validations was lucky.
    """
    passes = evidence.loss.validated
    if len(passes) <= PATIENCE:
        return
    best = min(range(len(passes)), key=lambda i: passes[i][1])
    since = [value for _, value in passes[best:]]
    lowest, last = since[0], median(since[-2:])
    before, after = _training_loss(evidence, passes[best][0]), _training_loss(evidence, None)
    if len(since) - 1 < PATIENCE or lowest <= 0 or before is None or after is None:
        return
    scatter = stdev(b - a for a, b in pairwise(since)) / math.sqrt(2)
    rose = min(since[-PATIENCE:]) > RISE * lowest and last - lowest > 2 * scatter
    if rose and after < before:
        yield Learning(
            "overfitting",
            "warn",
            f"the validation loss was best at validation {best + 1} of {len(passes)} with "
            f"{lowest:.3g} and rose to {last:.3g}, while the training loss fell from {before:.3g} to "
            f"{after:.3g}",
            "keep the weights of the best validation and stop there; more data or augmentation, "
            "weight decay, dropout, a smaller model",
        )


def noisy(evidence: Evidence) -> Iterator[Learning]:
    """Batches are so small that noise hides where the loss goes."""
    values, health = finite(evidence), evidence.health
    if len(values) < FEWEST_LOSSES or min(values) <= 0 or health.noise_scale is None:
        return
    if evidence.health.need_not_fall:
        return  # adversaries: such losses need not fall
    third = len(values) // 3
    late = values[-third:]
    spread = stdev(b - a for a, b in pairwise(late)) / math.sqrt(2)
    # By its logarithms too: a few large losses may hide how the others fall.
    still = _falls_no_more(values) and _falls_no_more([math.log(value) for value in values])
    lost = still and not may_fall_later(evidence)
    if (
        lost
        and is_noise(health)
        and spread > NOISY * mean(late)
        and mean(late) > 0.5 * first_and_last(values)[0]
    ):
        yield Learning(
            "noisy_loss",
            "warn",
            f"the loss changes by {spread / mean(late):.0%} of itself from step to step, and no fall "
            "is seen in it any more; noise outweighs the gradient in batches below some "
            f"{health.noise_scale:.0f} samples, and a step has {health.batch}",
            f"a larger batch, or gradients of {min(64, round(health.noise_scale / health.batch))} "
            "batches added up before a step; a lower learning rate",
        )


def _chance(evidence: Evidence) -> float:
    """The loss of one who knows how often each class comes, and no more: the entropy of the labels.

    With the correction for few of them of Miller (1955): of K classes among n by (K - 1) / 2n. Where the
    loss weights classes, as a rule by how rare they are, they come as often for it.
    """
    counts, classes = evidence.health.labels, max(1, evidence.health.classes)
    total = sum(counts)
    if len(counts) < 2 or evidence.health.weighted:
        return math.log(classes)
    entropy = -sum(n / total * math.log(n / total) for n in counts)
    return min(math.log(classes), entropy + (len(counts) - 1) / (2 * total))


def _validates_better(evidence: Evidence) -> bool:
    """Whether the newest validation is the best of those in the later half of what was seen."""
    seen = evidence.loss.samples
    later = [v for samples, v in evidence.loss.validated if samples >= (seen[0] + seen[-1]) / 2]
    return len(later) > 1 and later[-1] < min(later[:-1])


def _training_loss(evidence: Evidence, samples: int | None) -> float | None:
    """Median of the losses just before so many samples, or before the end."""
    pairs = zip(evidence.loss.samples, evidence.loss.values, strict=True)
    values = [v for s, v in pairs if v is not None and (samples is None or s <= samples)]
    return median(values[-20:]) if values else None


def _falls_no_more(values: list[float]) -> bool:
    """Whether a loss has stopped falling, rather than falls by less than its noise lets see."""
    third = len(values) // 3
    early, middle, late = values[:third], values[third : 2 * third], values[-third:]
    goes_on, unsure = mean(middle) - mean(late), 2 * error_of_difference(middle, late)
    if goes_on >= unsure:
        return False
    fell = mean(early) - mean(middle)
    if fell > 2 * error_of_difference(early, middle):
        return goes_on + unsure < SLOWER * fell
    return mean(early) - mean(late) < 2 * error_of_difference(early, late)

"""What the losses of a training did, as the rules of learning health ask it."""

from __future__ import annotations

import math
from statistics import mean, median, stdev

from outpace.records.evidence import Evidence
from outpace.records.health import Health

SMALL_UPDATE = 3e-6
"""|change| / |weights| a step; 1e-3 is usual (calibrated)"""
CRAWLING = 5e-5
"""the same of a model that still guesses among its classes: at a thousandth of Adam's usual rate a step
changes it by 2e-5 (calibrated)"""
FEWEST_LOSSES = 100
NO_FALL = 0.02
"""of the loss: what the interval of its fall, or rise, may reach"""
ABOUT = 0.1
"""of a loss, that it may be off from that of guessing"""
EPOCHS = 2
"""that a loss stays over, or less of them, before it is told"""
EARLY = 0.2
"""of a run of one epoch, or of none: less of it does not tell where its loss will stay"""
NOISE_SCALES = 8.0
"""gradient noise scale over the batch; steps gain from larger batches up to it"""
RISE = 1.1
"""a loss over what it was; of validation over its best (SageMaker Debugger's Overfit: 0.1 above the
training's)"""


def finite(evidence: Evidence) -> list[float]:
    """Losses that are numbers."""
    return [v for v in evidence.loss.values if v is not None]


def hardly_changes(evidence: Evidence) -> bool:
    """Whether a step changes the weights by next to nothing; by little, while the model guesses."""
    ratio, values = evidence.health.update_ratio, finite(evidence)
    if ratio is None or not values:
        return False
    return ratio <= (CRAWLING if guesses(evidence, first_and_last(values)[1]) else SMALL_UPDATE)


def guesses(evidence: Evidence, loss: float) -> bool:
    """Whether a loss is about that of guessing among the classes that there are."""
    chance = math.log(max(1, evidence.health.classes))
    return abs(loss - chance) < ABOUT * chance


def never_finite_again(evidence: Evidence) -> bool:
    """Whether the loss became NaN or infinite and stayed so."""
    bad = [value is None for value in evidence.loss.values]
    return any(bad) and all(bad[bad.index(True) :])


def fell_and_stays(evidence: Evidence) -> tuple[float, float] | None:
    """Where the loss came from and where it stayed, if that is what it did."""
    values = finite(evidence)
    if len(values) < FEWEST_LOSSES or min(values) <= 0 or evidence.health.need_not_fall:
        return None
    half = len(values) // 2
    first, early, late = median(values[:5]), values[half : half + half // 2], values[-(half // 2) :]
    stayed = stays(early, late) and 0.2 * first < mean(late) < 0.9 * first
    return (first, mean(early)) if stayed else None


def may_fall_later(evidence: Evidence) -> bool:
    """Whether less than a few epochs were seen, of a run of several that goes on; of one epoch, or of a run
    without epochs whose length is known, whether it was but a small part.
    """
    data, seen, run = evidence.input, evidence.loss.samples, evidence.run
    if run.finished or not seen:
        return False
    if not data.samples:
        return evidence.steps.count < EARLY * (run.total_steps or 0)
    return seen[-1] - seen[0] < (EARLY if data.epochs == 1 else EPOCHS) * data.samples


def first_and_last(values: list[float]) -> tuple[float, float]:
    """Medians of the first and of the last of them."""
    part = max(5, len(values) // 5)
    return median(values[:part]), median(values[-part:])


def samples_seen(evidence: Evidence) -> str:
    """Over how many samples losses were seen, in words."""
    return f"{evidence.loss.samples[-1] - evidence.loss.samples[0]:,} samples"


def error_of_difference(one: list[float], other: list[float]) -> float:
    """Standard error of the difference of their means."""
    return math.hypot(stdev(one) / math.sqrt(len(one)), stdev(other) / math.sqrt(len(other)))


def stays(early: list[float], late: list[float]) -> bool:
    """Surely no change from one to the other that is worth the name."""
    change = abs(mean(early) - mean(late))
    return change + 2 * error_of_difference(early, late) < NO_FALL * mean(early)


def is_noise(health: Health) -> bool:
    """Whether a batch is far too small to tell where its gradient leads."""
    return health.noise_scale is not None and health.noise_scale > NOISE_SCALES * health.batch

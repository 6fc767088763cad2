"""How long runs of the script take, with what comes between their steps, by what was seen of it.

Limits: of a run that was seen to its end it is known how much came between its steps, but not when.
"""

from __future__ import annotations

import math

from outpace.records.evidence import Evidence

A_BLOCK = 20
"""steps that a block of an arm may have to wait for"""


def epoch_of(evidence: Evidence) -> int:
    """Steps of an epoch; 0 where that is not known."""
    return math.ceil(evidence.steps_of_epoch)


def within_run(evidence: Evidence, steps: int) -> int:
    """So many steps, or all that the training has where it is known to have fewer."""
    run = evidence.run
    total = run.total_steps or (evidence.steps.count if run.finished else None)
    return steps if total is None else max(1, min(steps, total))


def run_s(evidence: Evidence, steps: int) -> float:
    """Seconds of a run of so many steps, from its process's begin."""
    between = between_s(evidence, steps)
    return evidence.run.to_first_step_s + steps * evidence.steps.mean_s + between


def between_s(evidence: Evidence, steps: int) -> float:
    """Seconds of validations, checkpoints, epochs' starts and the like in a run of so many steps."""
    run, epoch = evidence.run, epoch_of(evidence)
    if evidence.steps.mingled:
        return 0.0  # each step was measured with them
    if run.finished:
        seen = evidence.now_and_then_s + run.starts_s
        return seen * steps / max(1, evidence.steps.count)
    validations = steps // epoch if epoch and run.epoch_steps is None else 0
    unseen = validations * (run.validation_s or 0.0)
    return unseen + sum(one.seconds(steps) for one in run.recurring)


def longest_silence_s(evidence: Evidence, compiling_s: float) -> float:
    """Seconds in which arms that are compared may tell nothing: until the first step, and between steps."""
    run = evidence.run
    each = [one.each_s + one.longer_s for one in run.recurring]
    longest = max([*each, run.validation_s or 0.0])
    if run.finished:
        longest = evidence.now_and_then_s + evidence.once_s
    return run.to_first_step_s + A_BLOCK * evidence.steps.mean_s + longest + compiling_s

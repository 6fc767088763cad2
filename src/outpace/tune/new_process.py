"""Trials of what only a new process can take: environment variables, another allocator. Of several ranks that
is every remedy: within a process none can be in an arm without the others.

The target is run in pairs, under the recipe with and without the change, a few seconds of steps
each; the order turns about from pair to pair.
"""

from __future__ import annotations

import math
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from outpace.measure.statistics import paired_gain
from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import NOT_TRIED, Settings, Trial
from outpace.remedies.catalog import setup_of
from outpace.tune.candidate import Candidate
from outpace.tune.children import Launch, Tell, run_for_losses, write_trials
from outpace.tune.data_plan import SMALLEST
from outpace.tune.environment import environment_of
from outpace.tune.files import WARM_UP
from outpace.tune.proofs import compiling_s, time_for_proof
from outpace.tune.propose import best, candidates, in_steps
from outpace.tune.run_time import between_s, epoch_of
from outpace.tune.silence import hung, patience

PAIRS = 3
RUN_S = 4.0
FEWEST_STEPS = 4
"""that count: where steps are slow they take longer than RUN_S"""
EPOCHS = 3


def try_new_processes(
    launch: Launch,
    evidence: Evidence,
    trials: list[Trial],
    *,
    folder: Path,
    time_s: float,
    seeds: int,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    redraw: bool,
    tell: Tell,
) -> list[Trial]:
    """The trials, and those of remedies that need new processes, as far as the time reaches with the shortest
    proof, of so many seeds, after them.
    """
    deadline = monotonic() + time_s
    done = list(trials)
    remaining = [
        each for each in candidates(evidence, only, skip) if evidence.together or not in_steps(each)
    ]
    while True:
        accepted = [(t.remedy, t.settings) for t in done if t.accepted]
        found = best(evidence, remaining, setup_of(accepted), only, redraw=redraw)
        if found is None:
            return done
        candidate, predicted = found
        remaining = [each for each in remaining if each.remedy.name != candidate.remedy.name]
        length = length_of(candidate, evidence)
        each_s = cost_s(length, evidence) + compiling_s([t for t in done if t.accepted])
        needed = 2 * PAIRS * each_s
        proven = [*done, candidate.trial(predicted, None, True, "")]
        left = max(0.0, deadline - monotonic() - time_for_proof(evidence, proven, seeds))
        if needed > left:
            reason = f"{NOT_TRIED}: {needed:.0f} s would be needed, {left:.0f} are left"
            done.append(candidate.trial(predicted, None, False, reason))
            write_trials(folder, done)
            continue
        begun = monotonic()
        gain, why = _compare(
            *(launch, accepted, candidate, length, folder, tell),
            from_step=evidence.run.from_step,
            silent_s=patience(each_s),
        )
        least = max(SMALLEST, candidate.remedy.least)
        accepts = gain is not None and gain.low > 1.0 and gain.speedup >= least
        reason = why if gain is None else told(gain, least)
        done.append(candidate.trial(predicted, gain, accepts, reason, monotonic() - begun))
        write_trials(folder, done)


class Length(NamedTuple):
    """How long each run is: so many seconds of steps, or so many steps; the first do not count."""

    seconds: float
    steps: int | None
    warm_up: int


def length_of(candidate: Candidate, evidence: Evidence) -> Length:
    """Some seconds of steps, some steps at least; whole epochs where the gain lies in their start."""
    data, step_s = evidence.input, evidence.steps.mean_s
    seconds = max(RUN_S, (WARM_UP + FEWEST_STEPS) * step_s)
    # Each step has an epoch's start or the like in it, and counts; ranks end at the same one.
    if evidence.steps.mingled or evidence.together:
        return Length(seconds, math.ceil(seconds / max(1e-4, step_s)), WARM_UP)
    if candidate.remedy.gain_of != "epochs" or data.batches is None:
        return Length(seconds, None, WARM_UP)
    steps = epoch_of(evidence)
    return Length(EPOCHS * steps * step_s, EPOCHS * steps, steps)


def cost_s(length: Length, evidence: Evidence) -> float:
    """Seconds that a run of such a length takes, with what may come between its steps."""
    steps = length.steps or math.ceil(length.seconds / max(1e-4, evidence.steps.mean_s))
    return evidence.run.to_first_step_s + length.seconds + between_s(evidence, steps)


def _compare(
    launch: Launch,
    accepted: list[tuple[str, Settings]],
    candidate: Candidate,
    length: Length,
    folder: Path,
    tell: Tell,
    *,
    from_step: int,
    silent_s: float,
) -> tuple[Gain | None, str]:
    """The gain, or why there is none."""
    name = candidate.remedy.name
    sides = (accepted, [*accepted, (name, candidate.settings)])
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(PAIRS):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            tell("trials", 2 * pair + side, 2 * PAIRS, f"trying {name} in new processes")
            place = folder / f"{name}-{pair}-{side}"
            _, seconds, _ = run_for_losses(
                launch,
                sides[side],
                place,
                seconds=None if length.steps else length.seconds,
                steps=length.steps,
                every_step=length.steps is not None,
                from_step=from_step,
                env=environment_of(sides[side]),
                silent_s=silent_s,
            )
            counted = seconds[length.warm_up :]
            if not counted:
                return None, f"a run {hung(place) or 'ended too soon'}"
            times[side].append(sum(counted) / len(counted))
    return paired_gain(times[0], times[1]), ""


def told(gain: Gain, least: float) -> str:
    """What was measured, and why that is not enough where it is not."""
    figure = gain.in_words
    if gain.low <= 1.0:
        return f"no gain beyond chance: {figure}"
    if gain.speedup >= least:
        return f"measured {figure}"
    if f"{gain.speedup:.2f}" == f"{least:.2f}":
        figure = gain.in_digits(4)
    return f"measured {figure}, less than {least:.2f}x"

"""Proving a recipe within the time that is left; what cannot be proven leaves the recipe."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from outpace.records.evidence import Evidence
from outpace.records.trial import Proof, Settings, Trial
from outpace.remedies.catalog import setup_of
from outpace.remedies.compile_model import COMPILE_S
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.children import Launch, Tell, run_for_losses
from outpace.tune.data_plan import cold
from outpace.tune.environment import environment_of
from outpace.tune.prove import FEWEST_STEPS, Losses, Runner, prove, prove_equal, shortfall
from outpace.tune.trials import without

EQUAL_STEPS = 12
EQUAL_SHARE, ALONE_SHARE = 0.3, 0.8
"""of the time, for comparing bits: before quality is compared too, and where nothing else is"""
MOST_STEPS = 2000
MOST_SEEDS = 8


def prove_recipe(
    launch: Launch,
    evidence: Evidence,
    trials: list[Trial],
    *,
    folder: Path,
    time_s: float,
    seeds: int,
    margin: float,
    tell: Tell,
) -> tuple[Proof | None, list[Trial]]:
    """Prove what was accepted; the trials come back with what could not be proven left out."""
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return None, trials
    deadline = monotonic() + time_s
    exact = [t for t in accepted if t.keeps == "exact"]
    equal: Proof | None = None
    if exact:
        share = EQUAL_SHARE if len(exact) < len(accepted) else ALONE_SHARE
        steps = equal_steps(evidence, share * time_s)
        equal, trials = _prove_equal(
            launch, exact, trials, steps, folder / "exact", tell, evidence.run.from_step
        )
    rest = [t for t in trials if t.accepted and t.keeps != "exact"]
    if equal is None:
        rest = accepted  # the script does not repeat itself: quality is all that can be compared
    if not rest:
        return equal, trials
    # What was seen to keep the bits may speed up both sides; a cache does from the second epoch on.
    base = exact if equal and equal.proven else []
    size = size_of(evidence, base, rest, deadline - monotonic(), seeds)
    if size.steps < 2 * (epoch_of(evidence) or math.inf):
        base = [t for t in base if not only_caches(t)]
        size = size_of(evidence, base, rest, deadline - monotonic(), seeds)
    proof = prove(
        _runner(launch, base, [*base, *rest], folder, tell, 2 * size.seeds, evidence.run.from_step),
        seeds=seeds,
        steps=size.steps,
        margin=margin,
        most_seeds=size.seeds,
        enough_time=lambda: monotonic() < deadline,
    )
    if proof.proven:
        return proof, trials
    kept = _without(trials, rest, f"left out: no proof that quality is kept ({shortfall(proof)})")
    if equal is None or not any(t.accepted for t in kept):
        return proof, kept
    names = ", ".join(t.remedy for t in rest)
    said = f"{equal.reason}; {names} left out, not proven over {proof.seeds} seeds"
    return msgspec.structs.replace(equal, reason=said, curves=proof.curves), kept


def _without(trials: list[Trial], out: list[Trial], reason: str) -> list[Trial]:
    """Nor are those kept that were measured on top of one that is left out: without it they may be slower."""
    first = min(trials.index(t) for t in out)
    above = [t for t in trials[first:] if t.accepted and t not in out]
    kept = without(trials, above, f"on top of {trials[first].remedy}, which is left out")
    return [
        msgspec.structs.replace(t, accepted=False, reason=reason) if t in out else t for t in kept
    ]


def only_caches(trial: Trial) -> bool:
    """Whether a remedy gives nothing before data are met again."""
    setup = cold(_setup([trial]))
    same = replace(setup.feed, executor="own") if setup.feed.executor == "inline" else setup.feed
    return replace(setup, feed=same) == AS_IS


def _prove_equal(
    launch: Launch,
    exact: list[Trial],
    trials: list[Trial],
    steps: int,
    folder: Path,
    tell: Tell,
    from_step: int,
) -> tuple[Proof | None, list[Trial]]:
    """Check that the exact remedies keep the bits; if they do not, none of them is kept.

    None: the script's own runs differ.
    """
    equal = prove_equal(_runner(launch, [], exact, folder, tell, 2, from_step), steps)
    if equal is None or equal.proven:
        return equal, trials
    return equal, _without(trials, exact, f"left out: {equal.reason}")


def equal_steps(evidence: Evidence, time_s: float) -> int:
    """Steps that are compared: past an epoch's end, where that fits in the time, as what lasts from one epoch
    to the next, or is kept of it, is at work there first.
    """
    epoch = epoch_of(evidence)
    seen = sum(one.each_s for one in evidence.run.recurring if one.every is not None)
    between = seen + (evidence.run.validation_s or 0.0)
    both = 2 * (
        evidence.run.to_first_step_s + between + (epoch + EQUAL_STEPS) * evidence.steps.mean_s
    )
    return epoch + EQUAL_STEPS if both < time_s else EQUAL_STEPS


def epoch_of(evidence: Evidence) -> int:
    """Steps in all batches of the training's loader; 0 where it does not tell how many it has."""
    return math.ceil((evidence.input.batches or 0) / max(1, evidence.steps.micro_steps))


def time_for_proof(evidence: Evidence, trials: list[Trial], seeds: int) -> float:
    """Seconds that the shortest proof of what is accepted takes."""
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return 0.0
    numeric = any(t.keeps != "exact" for t in accepted)
    exact = any(t.keeps == "exact" for t in accepted)
    run, step = evidence.run.to_first_step_s, evidence.steps.mean_s
    compiling = compiling_s([t for t in accepted if t.keeps != "exact"])
    return (seeds * (2 * (run + FEWEST_STEPS * step) + compiling) if numeric else 0.0) + (
        2 * (run + EQUAL_STEPS * step) if exact else 0.0
    )


def compiling_s(trials: list[Trial]) -> float:
    """Seconds that a process compiles for, under these remedies."""
    return COMPILE_S[1] if _setup(trials).compiled else 0.0


def _setup(trials: list[Trial]) -> Setup:
    return setup_of((t.remedy, t.settings) for t in trials)


class Size(NamedTuple):
    """How large a proof is: steps of each run, and pairs of runs at the most."""

    steps: int
    seeds: int


def size_of(
    evidence: Evidence, base: list[Trial], rest: list[Trial], time_s: float, seeds: int
) -> Size:
    """The proof that fits into the time: first more seeds, which tell more, then more steps.

    Each run fills the caches of ``base`` anew, in its first epoch.
    """
    uncached = [t for t in base if not only_caches(t)]
    pair, filling = (
        max(1e-4, evidence.steps.mean_s) / _gain(some) * (1 + 1 / _gain(rest))
        for some in (base, uncached)
    )
    starts = 2 * evidence.run.to_first_step_s + epoch_of(evidence) * max(0.0, filling - pair)
    starts += 2 * compiling_s(base) + (0.0 if compiling_s(base) else compiling_s(rest))
    fitting = int(time_s / (starts + FEWEST_STEPS * pair))
    count = max(seeds, min(MOST_SEEDS, fitting))
    most = min(evidence.run.total_steps or MOST_STEPS, MOST_STEPS)
    return Size(max(FEWEST_STEPS, min(most, int((time_s / count - starts) / pair))), count)


def _gain(trials: list[Trial]) -> float:
    return math.prod(t.measured.speedup for t in trials if t.measured is not None)


def _runner(
    launch: Launch,
    base: list[Trial],
    recipe: list[Trial],
    folder: Path,
    tell: Tell,
    total: int,
    from_step: int,
) -> Runner:
    done = 0

    def run(seed: int, under: bool, steps: int) -> Losses | None:
        nonlocal done
        name = "recipe" if under else "base"
        tell("proof", done, max(total, done + 1), f"seed {seed}, {name}")
        done += 1
        applied: list[tuple[str, Settings]] = [
            (t.remedy, t.settings) for t in (recipe if under else base)
        ]
        losses, _, _ = run_for_losses(
            launch,
            applied,
            folder / f"seed-{seed}-{name}",
            steps=steps,
            shift=seed * 7919,
            from_step=from_step,
            env=environment_of(applied),
        )
        return losses

    return run

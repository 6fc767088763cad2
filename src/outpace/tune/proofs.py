"""Proving a recipe within the time that is left; what cannot be proven leaves the recipe."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from outpace.plan.budget import duration
from outpace.records.evidence import Evidence
from outpace.records.trial import Proof, Settings, Trial
from outpace.remedies.catalog import remedy, setup_of_trials
from outpace.remedies.compile_model import COMPILE_S
from outpace.seams.setup import AS_IS
from outpace.tune.children import Launch, Tell, run_for_losses
from outpace.tune.data_plan import cold
from outpace.tune.environment import environment_of
from outpace.tune.prove import (
    FAILED,
    FEWEST_STEPS,
    NO_LOSS,
    Losses,
    Runner,
    prove,
    prove_equal,
    shortfall,
)
from outpace.tune.run_time import between_s, epoch_of, run_s, within_run
from outpace.tune.silence import hung, patience
from outpace.tune.trials import without

EQUAL_STEPS = 12
OVER = 1.1
"""times the time that is left, which a proof may be expected to take"""
NO_TIME = Proof(True, False, reason="there was no time left for it")
LAST_SHARE = 1 / 3
"""of the time for quality, kept for what draws other random numbers: the script's own runs were made"""
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
    within: bool = False,
) -> tuple[Proof | None, list[Trial]]:
    """Prove what was accepted; the trials come back with what could not be proven left out.

    ``within``: quality is not proven where the shortest proof would take longer than there is time.
    """
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return None, trials
    deadline = monotonic() + time_s
    exact = [t for t in accepted if t.keeps == "exact"]
    equal: Proof | None = None
    if exact:
        others = [t for t in accepted if t not in exact]
        steps = equal_steps(evidence, (EQUAL_SHARE if others else ALONE_SHARE) * time_s)
        until = deadline - time_for_proof(evidence, others, seeds)
        equal, trials = _prove_equal(
            launch, evidence, exact, trials, steps, folder / "exact", tell, until
        )
    rest = [t for t in trials if t.accepted and t.keeps != "exact"]
    if equal is None:
        rest = accepted  # the script does not repeat itself: quality is all that can be compared
    if not rest:
        return equal, trials
    # Where bits cannot be compared, what keeps them is proven by its quality as well.
    needed = shortest_s(evidence, seeds) + seeds * compiling_s(rest)
    left = max(0.0, deadline - monotonic())
    if within and needed > OVER * left:
        why = f"the shortest proof takes {duration(needed)}, {duration(left)} of --time was left"
        part, out = None, rest
        proof = msgspec.structs.replace(NO_TIME, reason=why, needed_s=needed)
    else:
        # What was seen to keep the bits may speed up both sides.
        base = [t for t in exact if t in trials] if equal and equal.proven else []
        part, proof, out = _prove_quality(
            launch, evidence, base, rest, folder, deadline, seeds=seeds, margin=margin, tell=tell
        )
    if proof.proven:
        return proof, trials
    kept = _without(trials, out, f"left out: no proof that quality is kept ({shortfall(proof)})")
    if part is not None:
        return part, kept
    if equal is None or not any(t.accepted for t in kept):
        return proof, kept
    names = ", ".join(t.remedy for t in rest)
    said = f"{equal.reason}; {names} left out: {shortfall(proof)}"
    more = {"curves": proof.curves, "needed_s": proof.needed_s}
    return msgspec.structs.replace(equal, reason=said, **more), kept


def _prove_quality(
    launch: Launch,
    evidence: Evidence,
    base: list[Trial],
    rest: list[Trial],
    folder: Path,
    deadline: float,
    *,
    seeds: int,
    margin: float,
    tell: Tell,
) -> tuple[Proof | None, Proof, list[Trial]]:
    """Prove what draws the same random numbers, then all: the proof of the first alone, where there is one,
    that of all, and what is to be left out unless that is proven. Both sides run under ``base``.
    """
    first, last = split(evidence, rest)
    time_s = (1 - LAST_SHARE if last else 1.0) * (deadline - monotonic())
    size = size_of(evidence, base, first, time_s, seeds)
    if size.steps < 2 * (epoch_of(evidence) or math.inf):  # a cache pays from the second epoch on
        base = [t for t in base if not only_caches(t)]
        size = size_of(evidence, base, first, time_s, seeds)
    own: dict[int, Losses | str] = {}

    def quality(some: list[Trial]) -> Proof:
        run = _runner(launch, evidence, base, [*base, *some], folder, tell, 2 * size.seeds)

        def each_once(seed: int, under: bool, steps: int) -> Losses | str:
            if under:
                return run(seed, under, steps)
            if seed not in own:
                own[seed] = run(seed, under, steps)
            return own[seed]

        return prove(
            each_once,
            seeds=seeds,
            steps=size.steps,
            margin=margin,
            most_seeds=size.seeds,
            enough_time=lambda: monotonic() < deadline,
            by_loss=not evidence.health.need_not_fall,
        )

    proof = quality(first)
    if not last or not proof.proven:
        return None, proof, first
    last_s = seeds * recipe_run_s(evidence, [*base, *rest], size.steps)
    fits = monotonic() + last_s <= deadline
    too_long = msgspec.structs.replace(NO_TIME, needed_s=last_s)
    return proof, quality([*first, *last]) if fits else too_long, last


def split(evidence: Evidence, rest: list[Trial]) -> tuple[list[Trial], list[Trial]]:
    """What comes before the first that deals out random numbers in another order, and that with the rest: it
    is harder to prove, and is not to take others with it. All are the first part where none comes before it.
    """
    redraws = (n for n, t in enumerate(rest) if remedy(t.remedy).redraws(evidence))
    at = next(redraws, 0) or len(rest)
    return rest[:at], rest[at:]


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
    setup = cold(setup_of_trials([trial]))
    same = replace(setup.feed, executor="own") if setup.feed.executor == "inline" else setup.feed
    return replace(setup, feed=same) == AS_IS


def _prove_equal(
    launch: Launch,
    evidence: Evidence,
    exact: list[Trial],
    trials: list[Trial],
    steps: int,
    folder: Path,
    tell: Tell,
    until: float,
) -> tuple[Proof | None, list[Trial]]:
    """Check that the exact remedies keep the bits. If they do not, those before the one that breaks them are
    kept: the others were measured on top of it. It is looked for by halves, ``until`` the time is over.

    None: the script's own runs differ.
    """
    own: list[Losses | str] = []

    def compared(some: list[Trial]) -> Proof | None:
        run, known = _runner(launch, evidence, [], some, folder, tell, 2), own[:1]

        def noted(seed: int, under: bool, steps: int) -> Losses | str:
            if under:
                return run(seed, under, steps)
            own.extend(known or [run(seed, under, steps)])
            return own[-1]

        return prove_equal(noted, steps)

    equal = different = compared(exact)
    if equal is None or different is None or equal.proven:
        return equal, trials
    kept, differing = 0, len(exact)
    tells = own and isinstance(own[0], Losses) and equal.reason != NO_LOSS
    while tells and differing - kept > 1 and monotonic() + run_s(evidence, steps) < until:
        some = exact[: (kept + differing) // 2]
        found = compared(some)
        if found is None or not found.proven:
            differing, different = len(some), found or different
        else:
            kept, equal = len(some), found
    out = exact[kept:differing]
    names = ", ".join(t.remedy for t in out)
    if kept:
        said = f"{equal.reason}; not so with {names}, left out"
        equal = msgspec.structs.replace(equal, reason=said)
    together = f"; {names} were compared together" if len(out) > 1 else ""
    return equal, _without(trials, out, f"left out: {different.reason}{together}")


def equal_steps(evidence: Evidence, time_s: float) -> int:
    """Steps that are compared: past an epoch's end, where that fits in the time, as what lasts from one epoch
    to the next, or is kept of it, is at work there first.
    """
    past = within_run(evidence, epoch_of(evidence) + EQUAL_STEPS)
    return past if 2 * run_s(evidence, past) < time_s else within_run(evidence, EQUAL_STEPS)


def time_for_proof(evidence: Evidence, trials: list[Trial], seeds: int) -> float:
    """Seconds that the shortest proof of what is accepted takes."""
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return 0.0
    numeric = any(t.keeps != "exact" for t in accepted)
    exact = any(t.keeps == "exact" for t in accepted)
    compiling = compiling_s([t for t in accepted if t.keeps != "exact"])
    return (shortest_s(evidence, seeds) + seeds * compiling if numeric else 0.0) + (
        exact_proof_s(evidence) if exact else 0.0
    )


def exact_proof_s(evidence: Evidence) -> float:
    """Seconds that the shortest comparison of bits takes."""
    return 2 * run_s(evidence, within_run(evidence, EQUAL_STEPS))


def shortest_s(evidence: Evidence, seeds: int) -> float:
    """Seconds that the shortest proof of quality takes."""
    return seeds * 2 * run_s(evidence, within_run(evidence, FEWEST_STEPS))


def with_last_s(evidence: Evidence, seeds: int) -> float:
    """The same where bits are compared before, and what draws other random numbers is proven after."""
    return 1.5 * shortest_s(evidence, seeds) + exact_proof_s(evidence)


def recipe_run_s(evidence: Evidence, recipe: list[Trial], steps: int) -> float:
    """Seconds of a run of so many steps under a recipe."""
    faster = evidence.steps.mean_s * (1 - 1 / max(1.0, _gain(recipe)))
    return run_s(evidence, steps) - steps * faster + compiling_s(recipe)


def compiling_s(trials: list[Trial]) -> float:
    """Seconds that a process compiles for, under these remedies."""
    return COMPILE_S[1] if setup_of_trials(trials).compiled else 0.0


class Size(NamedTuple):
    """How large a proof is: steps of each run, and pairs of runs at the most."""

    steps: int
    seeds: int


def size_of(
    evidence: Evidence, base: list[Trial], rest: list[Trial], time_s: float, seeds: int
) -> Size:
    """The proof that fits into the time: first more seeds, which tell more, then more steps, which may end
    before a validation that is too dear.

    Each run fills the caches of ``base`` anew, in its first epoch.
    """
    uncached = [t for t in base if not only_caches(t)]
    pair, filling = (
        max(1e-4, evidence.steps.mean_s) / _gain(some) * (1 + 1 / _gain(rest))
        for some in (base, uncached)
    )
    starts = 2 * evidence.run.to_first_step_s + epoch_of(evidence) * max(0.0, filling - pair)
    starts += 2 * compiling_s(base) + (0.0 if compiling_s(base) else compiling_s(rest))

    def cost_s(steps: int) -> float:
        return starts + steps * pair + 2 * between_s(evidence, steps)

    fewest, most = (within_run(evidence, steps) for steps in (FEWEST_STEPS, MOST_STEPS))
    count = max(seeds, min(MOST_SEEDS, int(time_s / cost_s(fewest))))
    fitting = bisect_right(range(fewest, most + 1), time_s / count, key=cost_s)
    return Size(fewest + max(0, fitting - 1), count)


def _gain(trials: list[Trial]) -> float:
    return math.prod(t.measured.speedup for t in trials if t.measured is not None)


def _runner(
    launch: Launch,
    evidence: Evidence,
    base: list[Trial],
    recipe: list[Trial],
    folder: Path,
    tell: Tell,
    total: int,
) -> Runner:
    done = 0

    def run(seed: int, under: bool, steps: int) -> Losses | str:
        nonlocal done
        name, chosen = ("recipe", recipe) if under else ("base", base)
        tell("proof", done, max(total, done + 1), f"seed {seed}, {name}")
        done += 1
        applied: list[tuple[str, Settings]] = [(t.remedy, t.settings) for t in chosen]
        place = folder / f"seed-{seed}-{name}"
        losses, _, _ = run_for_losses(
            launch,
            applied,
            place,
            steps=steps,
            shift=seed * 7919,
            from_step=evidence.run.from_step,
            env=environment_of(applied),
            silent_s=patience(run_s(evidence, steps) + compiling_s(chosen)),
        )
        return losses if losses is not None else hung(place) or FAILED

    return run

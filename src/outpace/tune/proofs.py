"""Proving a recipe within the time that is left; what cannot be proven leaves the recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import msgspec

from outpace.records.evidence import Evidence
from outpace.records.trial import Proof, Settings, Trial
from outpace.tune.children import Launch, run_for_losses
from outpace.tune.environment import environment_of
from outpace.tune.prove import FEWEST_STEPS, Losses, Runner, prove, prove_equal, shortfall

EQUAL_STEPS = 12
MOST_STEPS = 2000


def prove_recipe(
    launch: Launch,
    evidence: Evidence,
    trials: list[Trial],
    *,
    folder: Path,
    time_s: float,
    seeds: int,
    margin: float,
    tell: Callable[[str, float, float, str], None],
) -> tuple[Proof | None, list[Trial]]:
    """Prove what was accepted; the trials come back with what could not be proven left out."""
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return None, trials
    deadline = monotonic() + time_s
    exact = [t for t in accepted if t.keeps == "exact"]
    rest = [t for t in accepted if t.keeps != "exact"]
    if not rest:
        return _prove_equal(launch, exact, trials, folder, tell)
    steps = _steps_for(evidence, time_s, seeds)
    runner = _runner(launch, accepted, folder, tell, 2 * seeds)
    proof = prove(
        runner,
        seeds=seeds,
        steps=steps,
        margin=margin,
        enough_time=lambda: monotonic() < deadline,
    )
    if proof.proven:
        return proof, trials
    reason = f"left out: no proof that quality is kept ({shortfall(proof)})"
    kept = [
        msgspec.structs.replace(t, accepted=False, reason=reason) if t in rest else t
        for t in trials
    ]
    if not exact:
        return proof, kept
    equal, kept = _prove_equal(launch, exact, kept, folder / "exact", tell)
    names = ", ".join(t.remedy for t in rest)
    said = f"{equal.reason}; {names} left out, not proven over {proof.seeds} seeds"
    return msgspec.structs.replace(equal, reason=said, curves=proof.curves), kept


def _prove_equal(
    launch: Launch,
    exact: list[Trial],
    trials: list[Trial],
    folder: Path,
    tell: Callable[[str, float, float, str], None],
) -> tuple[Proof, list[Trial]]:
    """Check that the exact remedies keep the bits; if they do not, none of them is kept."""
    equal = prove_equal(_runner(launch, exact, folder, tell, 2), EQUAL_STEPS)
    if equal.proven:
        return equal, trials
    reason = f"left out: {equal.reason}"
    kept = [
        msgspec.structs.replace(t, accepted=False, reason=reason) if t in exact else t
        for t in trials
    ]
    return equal, kept


def time_for_proof(evidence: Evidence, trials: list[Trial], seeds: int) -> float:
    """Seconds that the shortest proof of what is accepted takes."""
    accepted = [t for t in trials if t.accepted]
    if not accepted:
        return 0.0
    numeric = any(t.keeps != "exact" for t in accepted)
    runs, steps = (2 * seeds, FEWEST_STEPS) if numeric else (2, EQUAL_STEPS)
    return runs * (evidence.run.startup_s + steps * evidence.steps.mean_s)


def _steps_for(evidence: Evidence, time_s: float, seeds: int) -> int:
    """Steps of each run so that all of them fit into the time."""
    step = max(1e-4, evidence.steps.mean_s)
    each = time_s / (2 * seeds) - evidence.run.startup_s
    wanted = int(each / step)
    most = evidence.run.total_steps or MOST_STEPS
    return max(FEWEST_STEPS, min(wanted, most, MOST_STEPS))


def _runner(
    launch: Launch,
    trials: list[Trial],
    folder: Path,
    tell: Callable[[str, float, float, str], None],
    total: int,
) -> Runner:
    remedies: list[tuple[str, Settings]] = [(t.remedy, t.settings) for t in trials]
    done = 0

    def run(seed: int, recipe: bool, steps: int) -> Losses | None:
        nonlocal done
        tell(
            "proof",
            done,
            max(total, done + 1),
            f"seed {seed}, {'recipe' if recipe else 'as it is'}",
        )
        done += 1
        applied = remedies if recipe else []
        at = folder / f"seed-{seed}-{'recipe' if recipe else 'base'}"
        losses, _, _ = run_for_losses(
            launch, applied, at, steps=steps, shift=seed * 7919, env=environment_of(applied)
        )
        return losses

    return run

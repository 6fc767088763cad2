"""A recipe that makes a training faster: remedies are tried, proven, and written down."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from outpace.adapters.work import Output, Progress, Work, working
from outpace.api.diagnosing import finish, interpret, measure
from outpace.errors import Interrupted, NotProven, RecipeError
from outpace.plan.budget import duration
from outpace.records.evidence import Evidence
from outpace.records.recipe_file import write_recipe
from outpace.records.session import Diagnosis, Session
from outpace.records.target import Target
from outpace.records.trial import TOO_SHORT, Proof, Trial

LEAST_S, MOST_S = 180.0, 600.0
"""that tuning takes by itself"""
DIAGNOSE_SHARE = 0.4
SHORT_S = 150.0
"""of tuning, of which a diagnosis takes its share; with more it takes what it needs, a minute at the most"""
TRIAL_SHARE = 0.35
LEAST_SHARE = 0.2
"""of a time that was given: in less nothing is tried, and by so much it may be overrun"""
REDRAWS = (
    "it deals out random numbers in another order, and the shortest proof that nothing is lost by that takes "
    "{}: more --time tries it"
)
MOSTLY_OVER = 0.7
"""share of the time for trials from which on it is what was lacking: a part is kept for the whole recipe"""


def tune(
    target: Target,
    *,
    session: Path,
    recipe: Path,
    time_s: float | None = None,
    force: bool = False,
    seeds: int = 3,
    margin: float = 0.01,
    require_proof: bool = False,
    only: tuple[str, ...] = (),
    skip: tuple[str, ...] = (),
    ram_bytes: int | None = None,
    disk_bytes: int | None = None,
    begin: str | None = None,
    allow: Sequence[Path] = (),
    output: Output = "inherit",
    progress: Progress | None = None,
) -> Session:
    """Find, measure and prove a recipe; write it.

    ``session``, ``begin``, ``allow``, ``output``: as of `diagnose`. ``recipe``: the file that it is written
    to. ``time_s``: seconds for all of it, which a proof that takes longer is not begun in; None: as of
    `default_time`, and as much more as the shortest proof needs. ``seeds``: of the proof, at the least.
    ``margin``: how much worse counts as no worse, as a share of the loss's fall. ``only``,
    ``skip``: names of remedies.
    ``ram_bytes``, ``disk_bytes``: what caches may take. Raises UsageError for more than there is,
    and for a name that no remedy has, RecipeError where the recipe cannot be written, and NotProven where
    ``require_proof`` is not met; the session is written down by then, as it is at Ctrl-C.
    """
    from outpace.remedies.catalog import remedy
    from outpace.tune.cache_limits import cache_limits
    from outpace.tune.proofs import shortest_s
    from outpace.tune.prove import shortfall

    for name in (*only, *skip):
        remedy(name)
    check_recipe(recipe, force=force)
    limits, script = cache_limits(ram_bytes, disk_bytes), _script(target)
    with working(target, session, output, progress, allow) as work:
        brief = time_s * DIAGNOSE_SHARE if time_s is not None and time_s < SHORT_S else None
        evidence, code, notes = measure(
            work, brief, None, limits=limits, begin=begin, from_start=brief is not None
        )
        diagnosis = interpret(target, work.machine, evidence, code, notes)
        if diagnosis.outcome != "done":
            return finish(work, diagnosis, evidence, "tune")
        total = time_s or default_time(evidence, work.seconds, seeds)
        try:
            within = time_s is not None
            redraw = work.seconds + TRIAL_SHARE * total + shortest_s(evidence, seeds) <= total
            trials, final = _try(work, evidence, total, only, skip, redraw, seeds, within)
            compared = _accepted(trials)
            trials = _try_anew(work, evidence, trials, total, only, skip, redraw, seeds)
            proof, trials = _prove(work, evidence, trials, total, seeds, margin, within)
        except KeyboardInterrupt:
            _cut_off(work, diagnosis, evidence)
            raise
        if require_proof and proof is not None and not proof.proven:
            set_aside(recipe, work, force=force)
            found = finish(work, diagnosis, evidence, "tune", trials=tuple(trials), proof=proof)
            hint = "give it more --time"
            if proof.refuted:
                hint = "--skip leaves a remedy out"
            elif not proof.needed_s:
                hint += " or --seeds, or a wider --margin"
            raise NotProven(shortfall(proof), hint, session=found)
        final = _as_a_whole(final, compared, trials)
        changed = _script(target) != script
        if changed:
            work.notes.append(
                f"{target.name} was changed while it was tuned: runs of both were compared. Tune it again"
            )
        return _conclude(work, diagnosis, evidence, trials, final, proof, recipe, force, changed)


def check_recipe(path: Path, *, force: bool) -> None:
    """Raises RecipeError where no recipe can be written, before anything is measured."""
    if path.is_dir():
        raise RecipeError(f"{path} is a folder", f"name a file in it: {path / 'outpace.toml'}")
    if path.exists() and not force:
        raise RecipeError(f"{path} exists already", "--force replaces it, --recipe names another")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise RecipeError(
            f"{path} cannot be written: {above} is no folder", "--recipe names another"
        )
    if not os.access(above, os.W_OK):
        raise RecipeError(
            f"{path} cannot be written: {above} is read-only here", "--recipe names another"
        )


def set_aside(path: Path, work: Work, *, force: bool) -> None:
    """A recipe that was to be replaced, and by none: `outpace run` is not to apply it unasked."""
    if not force or not path.exists():
        return
    aside = free(path.with_name(f"{path.name}.old"))
    try:
        path.replace(aside)
    except OSError as error:
        why = error.strerror or error
        work.notes.append(f"{path} is an earlier recipe, and could not be set aside: {why}")
    else:
        work.notes.append(f"{path} was there before; as nothing takes its place it is {aside} now")


def free(path: Path) -> Path:
    """That, or the first of "name-2", "name-3" and so on where no file is."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


def _script(target: Target) -> bytes | None:
    """What is in the script's file; None where there is no such file."""
    path = Path(target.cwd) / target.name
    return path.read_bytes() if target.kind == "script" and path.is_file() else None


def _cut_off(work: Work, diagnosis: Diagnosis, evidence: Evidence) -> None:
    """Write down what there is at Ctrl-C: the diagnosis, and the trials made by then."""
    from outpace.tune.children import tried_by_now

    code = Interrupted.exit_code
    cut = msgspec.structs.replace(diagnosis, outcome="interrupted", exit_code=code)
    finish(work, cut, evidence, "tune", trials=tuple(tried_by_now(work.session / "trials")))


def default_time(evidence: Evidence, spent_s: float, seeds: int) -> float:
    """Seconds for tuning: 5 % of the run, or what trials and the shortest proof take after the diagnosis; at
    least three minutes, at most ten.
    """
    from outpace.tune.proofs import shortest_s, with_last_s

    proofs = with_last_s(evidence, seeds), shortest_s(evidence, seeds)
    # Where none fits in the most, more than the least would not do either.
    needed = ((spent_s + each) / (1 - TRIAL_SHARE) for each in proofs)
    enough = next((seconds for seconds in needed if seconds <= MOST_S), 0.0)
    return min(MOST_S, max(LEAST_S, 0.05 * (evidence.run.estimated_s or 0.0), enough))


def _try(
    work: Work,
    evidence: Evidence,
    total: float,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    redraw: bool,
    seeds: int,
    within: bool,
) -> tuple[list[Trial], Mapping[str, Any]]:
    from outpace.remedies.catalog import remedy
    from outpace.remedies.compile_model import COMPILE_S
    from outpace.seams.setup import AS_IS
    from outpace.tune.children import try_remedies
    from outpace.tune.files import TRIALS
    from outpace.tune.proofs import exact_proof_s, shortest_s
    from outpace.tune.propose import candidates, untried
    from outpace.tune.run_time import longest_silence_s
    from outpace.tune.silence import patience

    (work.session / "trials" / TRIALS).unlink(missing_ok=True)
    for each in map(remedy, only):
        verdict = each.verdict(evidence)
        if not verdict.yes:
            work.notes.append(f"{each.name} does not apply: {verdict.reason}")
    if evidence.together:
        return [], {}
    time_s = total * TRIAL_SHARE
    if within:
        left = max(0.0, total - work.seconds)
        start_s, proof_s = evidence.run.to_first_step_s, exact_proof_s(evidence)
        least_s = LEAST_SHARE * total
        time_s = min(time_s, max(least_s, left - start_s - proof_s))
        if left - start_s < least_s:
            why = (
                f"{duration(left)} of --time was left, and the script takes {duration(start_s)} to begin, "
                f"a proof {duration(proof_s)}"
            )
            return untried(evidence, [], why, only, skip), {}
    compiles = any(one.on(AS_IS).compiled for one in candidates(evidence, only, skip))
    expected_s = longest_silence_s(evidence, COMPILE_S[2] if compiles else 0.0)
    spec = {
        "time_s": time_s,
        "silent_s": patience(expected_s),
        "evidence": str(work.session),
        "only": list(only),
        "skip": list(skip),
        "from_step": evidence.run.from_step,
        "mixes": evidence.run.mixes,
        "redraw": redraw,
    }
    began = work.seconds
    tried = try_remedies(work.launch, spec, work.session / "trials")
    work.notes += tried.notes
    late = work.seconds - began >= MOSTLY_OVER * time_s
    if late:
        why = f"the time for trials, {duration(time_s)}, was over"
    elif tried.too_short:
        why = TOO_SHORT
    elif not redraw:
        why = REDRAWS.format(duration(shortest_s(evidence, seeds)))
    else:
        why = ""
    if tried.failed or not why:
        return tried.trials, tried.final
    missed = untried(evidence, tried.trials, why, only, (*skip, *tried.excluded))
    if not (late or tried.too_short):
        missed = [trial for trial in missed if remedy(trial.remedy).redraws(evidence)]
    return [*tried.trials, *missed], tried.final


def _try_anew(
    work: Work,
    evidence: Evidence,
    trials: list[Trial],
    total: float,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    redraw: bool,
    seeds: int,
) -> list[Trial]:
    from outpace.tune.new_process import try_new_processes

    return try_new_processes(
        work.launch,
        evidence,
        trials,
        folder=work.session / "trials",
        time_s=total - work.seconds,
        seeds=seeds,
        only=only,
        skip=skip,
        redraw=redraw,
        tell=work.tell,
    )


def _prove(
    work: Work,
    evidence: Evidence,
    trials: list[Trial],
    total: float,
    seeds: int,
    margin: float,
    within: bool,
) -> tuple[Proof | None, list[Trial]]:
    from outpace.tune.proofs import prove_recipe, time_for_proof

    needed, left = time_for_proof(evidence, trials, seeds), max(0.0, total - work.seconds)
    if needed > left and not within:
        work.notes.append(
            f"the shortest proof takes {duration(needed)}; {duration(left)} of the time for tuning was left"
        )
    return prove_recipe(
        work.launch,
        evidence,
        trials,
        folder=work.session / "proof",
        time_s=total - work.seconds,
        seeds=seeds,
        margin=margin,
        tell=work.tell,
        within=within,
    )


def _as_a_whole(
    final: Mapping[str, Any], compared: list[str], trials: list[Trial]
) -> Mapping[str, Any]:
    """What the recipe gives as a whole; empty where something of what was compared is no part of it now."""
    from outpace.tune.recipe import on_top

    accepted = [t for t in trials if t.accepted]
    added = [t for t in accepted if t.remedy not in compared]
    if not final or len(accepted) - len(added) < len(compared):
        return {}
    return on_top(final, added) if added else final


def _conclude(
    work: Work,
    diagnosis: Diagnosis,
    evidence: Evidence,
    trials: list[Trial],
    final: Mapping[str, Any],
    proof: Proof | None,
    path: Path,
    force: bool,
    changed: bool,
) -> Session:
    """Write the recipe and the session; no patch where the script is another one by now."""
    from outpace.tune.children import total_gain
    from outpace.tune.data_plan import LEAST_BETTER
    from outpace.tune.recipe import by_trials, diff_of, recipe_of
    from outpace.tune.trials import without

    failed: OSError | None = None
    accepted = [t for t in trials if t.accepted]
    whole = total_gain(evidence, final) or total_gain(evidence, by_trials(accepted))
    speedup = whole if accepted else None
    if speedup is not None and speedup.speedup < LEAST_BETTER:
        how = "slower" if speedup.speedup < 1.0 else "no faster"
        why = f"and the whole run {how}: {speedup.speedup:.3f}x"
        trials = without(trials, accepted, why)
        accepted, speedup = [], None
    record = recipe_of(work.target, work.machine, accepted, speedup, proof) if accepted else None
    if record is None:
        set_aside(path, work, force=force)
    else:
        if not force and path.exists():  # another one was made meanwhile
            work.notes.append(f"{path} is another recipe by now; this one is {free(path)}")
            path = free(path)
        try:
            write_recipe(path, record)
        except OSError as error:
            failed, record = error, None
    diff, not_in_diff = ("", ()) if changed else diff_of(work.target, evidence, accepted)
    session = finish(
        work,
        diagnosis,
        evidence,
        "tune",
        trials=tuple(trials),
        proof=proof,
        speedup=speedup,
        recipe=str(path) if record is not None else None,
        recipe_record=record,
        diff=diff,
        not_in_diff=not_in_diff,
    )
    if failed is not None:
        raise RecipeError(
            f"{path} cannot be written: {failed.strerror}", f"outpace report {work.session} has it"
        )
    return session


def _accepted(trials: list[Trial]) -> list[str]:
    return [t.remedy for t in trials if t.accepted]

"""The pipeline: measure, diagnose, try, prove, apply. Reads as a table of contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from outpace.adapters.launch import start, stop, wait
from outpace.adapters.work import Output, Progress, Work
from outpace.errors import DeadlineError, NotProven, OutpaceError, RecipeError, TargetError
from outpace.measure.machine import describe
from outpace.plan.budget import duration
from outpace.plan.countdown import Countdown
from outpace.records.evidence import CacheLimits, Evidence
from outpace.records.files import read_json, write_json
from outpace.records.machine import Machine
from outpace.records.plan import Landed, Sizes
from outpace.records.plan import Progress as RunProgress
from outpace.records.recipe import Recipe
from outpace.records.recipe_file import read_recipe, recipe_text, write_recipe
from outpace.records.session import Diagnosis, MemorySummary, Outcome, Session, StepSummary
from outpace.records.target import Target
from outpace.records.trial import Proof, Trial
from outpace.tune.files import CHECKPOINT, PROGRESS, SIZES, TRACE, read

DIAGNOSE_SHARE = 0.4
SHORT_S = 60.0
TRIAL_SHARE = 0.35
SILENT = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch's profiler writes of its own doings to stderr"""


def diagnose(
    target: Target,
    *,
    session: Path,
    time_s: float | None = None,
    steps: int | None = None,
    output: Output = "inherit",
    progress: Progress | None = None,
    trace: Path | None = None,
    seed: int | None = None,
    changes: bool = False,
) -> Session:
    """Find by experiment what a training is bound by; changes nothing.

    With ``changes`` it is also seen what a model with less to do would take.
    """
    work = Work(target, session, output, progress)
    measured = _measure(work, time_s, steps, trace, seed, changes)
    diagnosis = interpret(target, work.machine, *measured)
    return _finish(work, diagnosis, measured[0], "diagnose")


def _measure(
    work: Work,
    time_s: float | None,
    steps: int | None,
    trace: Path | None = None,
    seed: int | None = None,
    changes: bool = False,
    limits: CacheLimits | None = None,
) -> tuple[Evidence, int, list[str]]:
    from outpace.tune.children import measure

    spec = {
        "time_s": time_s,
        "steps": steps,
        "seed_shift": seed or 0,
        "trace": trace is not None,
        "changes": changes,
        "cache_limits": msgspec.to_builtins(limits or CacheLimits()),
    }
    found = measure(work.launch, spec, work.session)
    if trace is not None:
        _write_trace(work.session, trace)
    evidence = found.evidence or Evidence(machine=work.machine)
    return evidence, found.exit_code, found.notes


def _write_trace(session: Path, path: Path) -> None:
    """A few steps as a Chrome/Perfetto trace."""
    from outpace.records.files import write_text
    from outpace.report.trace import chrome_trace

    events: list[tuple[str, str, int, int, str, dict[str, str]]] = [
        (name, "seams", start, end, "training thread", {})
        for name, start, end in read(session / TRACE, [])
    ]
    write_text(path, chrome_trace(events))


def interpret(
    target: Target, machine: Machine, evidence: Evidence, exit_code: int, notes: list[str]
) -> Diagnosis:
    """What the evidence means."""
    from outpace.diagnose.bottlenecks import findings
    from outpace.diagnose.learning import learning
    from outpace.tune.propose import with_advice

    found = with_advice(evidence, findings(evidence)) if evidence.steps.count else []
    outcome: Outcome = "done"
    if exit_code == 130:
        outcome = "interrupted"
    elif exit_code != 0:
        outcome = "failed"
    elif not evidence.steps.count:
        outcome = "no training"
    first = found[0] if found else None
    return Diagnosis(
        outcome=outcome,
        target=target,
        machine=machine,
        steps=StepSummary(
            evidence.steps.count,
            evidence.steps.median_s,
            evidence.steps.cpu_s,
            evidence.steps.samples_per_s,
        ),
        ledger=evidence.ledger,
        bound=first.bound if first else "none",
        cause=first.cause if first else None,
        findings=tuple(found),
        learning=tuple(learning(evidence)),
        memory=MemorySummary(evidence.memory.peak_bytes, evidence.memory.by_kind),
        overhead=evidence.overhead,
        notes=(*evidence.notes, *notes),
        exit_code=exit_code,
    )


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
    output: Output = "inherit",
    progress: Progress | None = None,
) -> Session:
    """Find, measure and prove a recipe; write it.

    ``ram_bytes``, ``disk_bytes``: what caches may take. Raises UsageError for more than there is.
    """
    from outpace.tune.cache_limits import cache_limits
    from outpace.tune.prove import shortfall

    if recipe.exists() and not force:
        raise RecipeError(f"{recipe} exists already", "--force replaces it, --recipe names another")
    limits = cache_limits(ram_bytes, disk_bytes)
    work = Work(target, session, output, progress)
    brief = time_s * DIAGNOSE_SHARE if time_s is not None and time_s < SHORT_S else None
    evidence, code, notes = _measure(work, brief, None, limits=limits)
    diagnosis = interpret(target, work.machine, evidence, code, notes)
    if diagnosis.outcome != "done":
        return _finish(work, diagnosis, evidence, "tune")
    total = time_s or default_time(evidence)
    trials, final = _try(work, total, only, skip)
    compared = _accepted(trials)
    trials = _try_anew(work, evidence, trials, total, only, skip, seeds)
    proof, trials = _prove(work, evidence, trials, total, seeds, margin)
    if require_proof and proof is not None and not proof.proven:
        _finish(work, diagnosis, evidence, "tune", trials=tuple(trials), proof=proof)
        raise NotProven(shortfall(proof), "give it more --time or --seeds, or a wider --margin")
    if _accepted(trials) != compared:
        final = {}  # the recipe is no longer what was compared as a whole
    return _conclude(work, diagnosis, evidence, trials, final, proof, recipe)


def default_time(evidence: Evidence) -> float:
    """Seconds for tuning: 5 % of the run, at least three minutes, at most ten."""
    return min(600.0, max(180.0, 0.05 * (evidence.run.estimated_s or 0.0)))


def _try(
    work: Work, total: float, only: tuple[str, ...], skip: tuple[str, ...]
) -> tuple[list[Trial], Mapping[str, Any]]:
    from outpace.tune.children import try_remedies

    spec = {
        "time_s": total * TRIAL_SHARE,
        "evidence": str(work.session),
        "only": list(only),
        "skip": list(skip),
    }
    tried = try_remedies(work.launch, spec, work.session / "trials")
    work.notes += tried.notes
    return tried.trials, tried.final


def _try_anew(
    work: Work,
    evidence: Evidence,
    trials: list[Trial],
    total: float,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    seeds: int,
) -> list[Trial]:
    from outpace.tune.new_process import try_new_processes
    from outpace.tune.proofs import time_for_proof

    reserve = time_for_proof(evidence, trials, seeds)
    return try_new_processes(
        work.launch,
        evidence,
        trials,
        folder=work.session / "trials",
        time_s=total - work.seconds - reserve,
        only=only,
        skip=skip,
        tell=work.tell,
    )


def _prove(
    work: Work, evidence: Evidence, trials: list[Trial], total: float, seeds: int, margin: float
) -> tuple[Proof | None, list[Trial]]:
    from outpace.tune.proofs import prove_recipe

    return prove_recipe(
        work.launch,
        evidence,
        trials,
        folder=work.session / "proof",
        time_s=total - work.seconds,
        seeds=seeds,
        margin=margin,
        tell=work.tell,
    )


def _conclude(
    work: Work,
    diagnosis: Diagnosis,
    evidence: Evidence,
    trials: list[Trial],
    final: Mapping[str, Any],
    proof: Proof | None,
    path: Path,
) -> Session:
    """Write the recipe and the session."""
    from outpace.tune.children import total_gain
    from outpace.tune.recipe import diff_of, product, recipe_of

    accepted = [t for t in trials if t.accepted]
    whole = total_gain(evidence, final) if accepted else None
    speedup = whole or (product(accepted) if accepted else None)
    record = recipe_of(work.target, work.machine, accepted, speedup, proof) if accepted else None
    if record is not None:
        write_recipe(path, record)
    return _finish(
        work,
        diagnosis,
        evidence,
        "tune",
        trials=tuple(trials),
        proof=proof,
        speedup=speedup,
        recipe=str(path) if record is not None else None,
        recipe_record=record,
        diff=diff_of(work.target, evidence, accepted),
    )


def _accepted(trials: list[Trial]) -> list[str]:
    return [t.remedy for t in trials if t.accepted]


def _finish(
    work: Work,
    diagnosis: Diagnosis,
    evidence: Evidence,
    command: Literal["diagnose", "tune", "run"],
    **more: Any,
) -> Session:
    """Write the session down."""
    session = Session(
        **{f: getattr(diagnosis, f) for f in Diagnosis.__struct_fields__ if f != "notes"},
        notes=(*diagnosis.notes, *work.notes),
        command=command,
        started=work.started,
        seconds=work.seconds,
        evidence=evidence,
        **more,
    )
    write_json(work.session / "session.json", session)
    return session


def run(
    target: Target,
    *,
    recipe: Path | None,
    session: Path | None = None,
    output: Output = "inherit",
    deadline: Countdown | None = None,
    land: Landed | None = None,
    on_progress: Callable[[RunProgress], None] | None = None,
) -> int:
    """Run the target under a recipe; its exit code.

    With a ``deadline`` it is watched for it, and with ``land`` ended in time: the learning rate then
    goes down as ``land`` says. Raises DeadlineError where it ended well, but too late.
    """
    record = _checked(read_recipe(recipe)) if recipe is not None else None
    applied = record.remedies if record is not None else ()
    folder = (session or Path(".outpace") / "last-run").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for old in (PROGRESS, CHECKPOINT):
        (folder / old).unlink(missing_ok=True)
    spec: dict[str, Any] = {
        "entry": "outpace.tune.apply:begin",
        "session": str(folder),
        "remedies": [{"name": r.name, "settings": r.settings} for r in applied],
    }
    if deadline is not None:
        spec["deadline"] = {
            "began": deadline.began,
            "seconds": deadline.seconds,
            "at": deadline.at,
            "land": land,
        }

    def tick() -> None:
        told = read(folder / PROGRESS)
        if told and on_progress is not None:
            on_progress(msgspec.convert(told, RunProgress))

    env = record.environment if record is not None else {}
    child = start(target, session=folder, mode="run", spec=spec, env=env, output=output)
    try:
        code = wait(child, on_tick=tick)
    except BaseException:
        stop(child)
        raise
    if deadline is not None and code == 0 and deadline.left() < 0:
        late = -deadline.left()
        raise DeadlineError(
            f"the deadline was missed by {duration(late) if late >= 10 else f'{late:.1f}s'}",
            _why_late(landed=land is not None, seen=(folder / PROGRESS).exists()),
        )
    return code


def _why_late(*, landed: bool, seen: bool) -> str:
    if not seen:
        return "no step of a training was seen in the script's process: it could not be watched"
    if landed:
        return "more --reserve leaves more time for the script's ending"
    return "--land ends it in time"


def sizes(
    target: Target, *, session: Path, output: Output = "inherit", progress: Progress | None = None
) -> Sizes:
    """Memory and arithmetic of a training's step, of a run that is thrown away.

    Raises TargetError where the script trains nothing.
    """
    work = Work(target, session, output, progress)
    work.tell("a step's memory", 0, 1)
    (work.session / SIZES).unlink(missing_ok=True)
    code = work.launch("outpace.tune.sizes:begin", {}, work.session, SILENT)
    found = None
    if (work.session / SIZES).exists():
        found = read_json(work.session / SIZES, Sizes)
    if found is None or not found.steps:
        raise TargetError(
            f"{target.name} ended with exit code {code} before its steps could be measured"
            if code
            else f"{target.name} came to its end before its steps could be measured",
            "see what `outpace diagnose` says of it",
        )
    return found


def _checked(recipe: Recipe) -> Recipe:
    """Warn where a recipe was made on another machine."""
    import sys

    here = describe()
    if recipe.fingerprint != here.fingerprint:
        print(
            f"warning: this recipe was measured on another machine ({recipe.machine}; here: "
            f"{here.cpu}, {here.cores} cores)\nhint: outpace tune {recipe.target}",
            file=sys.stderr,
        )
    return recipe


__all__ = ["OutpaceError", "TargetError", "diagnose", "recipe_text", "run", "sizes", "tune"]

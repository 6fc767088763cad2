"""What a training is bound by: measured, interpreted, and written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from outpace.adapters.work import Output, Progress, Work, working
from outpace.errors import Interrupted, UsageError
from outpace.records.counted import counted
from outpace.records.evidence import CacheLimits, Evidence
from outpace.records.files import write_json
from outpace.records.machine import Machine
from outpace.records.session import Diagnosis, MemorySummary, Outcome, Session, StepSummary
from outpace.records.target import Target
from outpace.tune.files import TRACE, read


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
    begin: str | None = None,
    allow: Sequence[Path] = (),
) -> Session:
    """Find by experiment what a training is bound by; changes nothing.

    ``session``: the folder for all that is measured, new or an earlier session's. ``time_s``: seconds for
    experiments; None: 5 % of the run or 150 steps, 20 to 60. ``steps``: the run ends after so many.
    ``seed``: shifts every seed of the script. ``begin``: the function that the training which is measured
    begins in, or how many steps of optimizers come before it. ``allow``: folders that the target writes to
    as ever. ``trace``: a file for Perfetto. ``output``: where the target prints: "inherit", "stderr" or a
    file. With ``changes`` it is also seen what a model with less to do would take. Raises SessionError where
    the folder cannot serve.
    """
    with working(target, session, output, progress, allow) as work:
        measured = measure(work, time_s, steps, trace, seed, changes, begin=begin)
        diagnosis = interpret(target, work.machine, *measured)
        return finish(work, diagnosis, measured[0], "diagnose")


def measure(
    work: Work,
    time_s: float | None,
    steps: int | None,
    trace: Path | None = None,
    seed: int | None = None,
    changes: bool = False,
    limits: CacheLimits | None = None,
    begin: str | None = None,
    from_start: bool = False,
) -> tuple[Evidence, int, list[str]]:
    """Evidence of a training that is run and thrown away, its exit code, and notes. ``from_start``: the time
    is that of whole runs, the script's start in it.
    """
    from outpace.tune import measuring

    spec = {
        "time_s": time_s,
        "from_start": from_start,
        "steps": steps,
        "seed_shift": seed or 0,
        "trace": trace is not None,
        "changes": changes,
        "begin": begin,
        "cache_limits": msgspec.to_builtins(limits or CacheLimits()),
    }
    (work.session / TRACE).unlink(missing_ok=True)
    found = measuring.measure(work.launch, spec, work.session)
    if trace is not None and (why := _write_trace(work.session, trace)) is not None:
        work.notes.append(why)
    evidence = found.evidence or Evidence(machine=work.machine)
    return evidence, found.exit_code, found.notes


def _write_trace(session: Path, path: Path) -> str | None:
    """A few steps as a Chrome/Perfetto trace; or why there is none, as of several ranks."""
    from outpace.report import written
    from outpace.report.trace import chrome_trace

    if not (session / TRACE).exists():
        return f"{path} is not written: no step was left to trace"
    events: list[tuple[str, str, int, int, str, dict[str, str]]] = [
        (name, "seams", start, end, "training thread", {})
        for name, start, end in read(session / TRACE, [])
    ]
    try:
        written(path, chrome_trace(events))
    except UsageError as error:
        return error.message
    return None


def interpret(
    target: Target, machine: Machine, evidence: Evidence, exit_code: int, notes: list[str]
) -> Diagnosis:
    """What the evidence means."""
    from outpace.diagnose.bottlenecks import findings
    from outpace.diagnose.learning import learning
    from outpace.tune.propose import with_advice

    found = with_advice(evidence, findings(evidence)) if evidence.steps.count else []
    outcome: Outcome = "done"
    if exit_code == Interrupted.exit_code:
        outcome = "interrupted"
    elif exit_code != 0:
        outcome = "failed"
    elif not evidence.steps.count:
        outcome = "no training"
    if outcome == "done" and not evidence.experimented:
        seen = f"{counted(evidence.steps.count, 'step')} seen"
        notes = [
            *notes,
            f"nothing was left out of any step to time it without: {seen}, too few for that",
        ]
    first = found[0] if found else None
    return Diagnosis(
        outcome=outcome,
        target=target,
        machine=machine,
        steps=StepSummary(
            evidence.steps.count,
            evidence.steps.median_s,
            evidence.steps.cpu_s,
            evidence.steps.samples_per_s * evidence.world,
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


def finish(
    work: Work,
    diagnosis: Diagnosis,
    evidence: Evidence,
    command: Literal["diagnose", "tune"],
    **more: Any,
) -> Session:
    """Write the session down. Where that fails it is told: what was measured is not lost for that."""
    session = Session(
        **{f: getattr(diagnosis, f) for f in Diagnosis.__struct_fields__ if f != "notes"},
        notes=(*diagnosis.notes, *work.told),
        command=command,
        started=work.started,
        seconds=work.seconds,
        evidence=evidence,
        **more,
    )
    try:
        write_json(work.session / "session.json", session)
    except OSError as error:
        told = f"the session cannot be kept in {work.session}: {error.strerror or error}"
        return msgspec.structs.replace(session, notes=(*session.notes, told))
    return session

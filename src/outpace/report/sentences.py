"""What every report says in words: the verdict, the proof, the cost of watching, what to do next.

The terminal, the HTML and the Markdown report say the same sentences, written once here from the
session's record.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, NamedTuple

from outpace.records.counted import counted
from outpace.records.evidence import Overhead
from outpace.records.finding import Finding, Learning
from outpace.records.session import Session
from outpace.records.target import Target
from outpace.records.trial import NO_METRIC, TOO_SHORT, Proof, Trial
from outpace.report import words
from outpace.report.labels import BOUNDS, CAUSES

Tone = Literal["good", "warn", "bad", "plain"]

NOTHING = 1e-7
"""share of a loss's fall, or of a metric, that other rounding alone makes"""
OF_TRIALS = 0.35
"""share of the time for tuning that goes to trials"""
UNKNOWN = 4.0
"""times a step's time, at which the interval of what watching costs says nothing"""


class Verdict(NamedTuple):
    """The one sentence that a reader must take away, and one that explains it."""

    headline: str
    detail: str
    tone: Tone


class Next(NamedTuple):
    """A command to type and what it does."""

    command: str
    why: str


def verdict(session: Session) -> Verdict:
    """What this session found, the main thing first."""
    ended = _ended(session)
    if session.outcome == "no training":
        detail = f"The target ended{ended}; no backward pass and no optimizer step was seen in it."
        return Verdict("No training was found.", detail, "warn")
    if session.outcome == "failed":
        return Verdict(f"The target failed{ended}.", _until_then(session), "bad")
    if session.outcome == "interrupted":
        return Verdict("Interrupted before the end.", _until_then(session), "warn")
    if session.command == "tune":
        return _tuned(session)
    return _bound(session)


def _ended(session: Session) -> str:
    code = session.exit_code
    return "" if code is None else f" with exit code {code}"


def _until_then(session: Session) -> str:
    steps = session.steps.count
    if not steps:
        return "No step was measured."
    bound = "" if session.bound == "none" else bound_sentence(session)
    return f"{counted(steps, 'step')} had been measured. {bound}".strip()


def _bound(session: Session) -> Verdict:
    if session.bound == "none":
        return Verdict(bound_sentence(session), _none(session), "plain")
    return Verdict(bound_sentence(session), gain_sentence(session), "plain")


def _none(session: Session) -> str:
    if not session.evidence.experimented:
        return ceiling_sentence(session)  # its notes say why
    tried = "Nothing that was taken out of a step made it faster by more than the noise."
    return " ".join(filter(None, (tried, ceiling_sentence(session))))


def bound_sentence(session: Session) -> str:
    """``Bound by I/O: decoding and parsing samples at train.py:48.``"""
    if session.bound == "none":
        tried = session.evidence.experimented
        return "No bottleneck was found." if tried else "No experiment was made."
    text = f"Bound by {BOUNDS.get(session.bound, session.bound)}"
    if session.cause:
        text += f": {CAUSES.get(session.cause, words.plain(session.cause))}"
    where = session.findings[0].where if session.findings else None
    return f"{text} at {words.place(where, session.target.cwd)}." if where else f"{text}."


def learning_sentence(found: Learning) -> str:
    """What is wrong with the learning, and what to do."""
    advice = f"{found.advice[:1].upper()}{found.advice[1:]}"
    return words.plain(f"{found.reason}. {advice}.")


def gain_sentence(session: Session) -> str:
    """How much would be gained if the first finding's cost were gone."""
    if not session.findings:
        return ""
    first = session.findings[0]
    if first.cause == "arithmetic":
        return f"{first.reason[:1].upper()}{first.reason[1:]}."
    what = "the run" if first.gain_of == "run" else "a step"
    text = f"Without this cost {what} would be {_as_fast(first)}"
    before, ratio = session.evidence.steps.mean_s, first.gain.speedup  # as in its reason
    if first.cause == "ipc":
        before += session.evidence.starting_s
    if what == "a step" and words.finite(ratio) and words.finite(before) and ratio > 0 < before:
        text += f": {words.seconds(before / ratio)} instead of {words.seconds(before)}"
    return text + "."


def _as_fast(finding: Finding) -> str:
    inner = ", ".join(filter(None, (words.interval(finding.gain), finding.gain.how)))
    return f"{words.times(finding.gain.speedup)} as fast ({inner})"


def ceiling_sentence(session: Session) -> str:
    """The share of the machine's matrix-product speed that a step reaches; empty where unknown."""
    compute, step = session.evidence.compute, session.steps.median_s
    ceilings = session.evidence.machine.ceilings
    form = compute.products
    top = ceilings.matmul_flops.get(form, 0.0) if ceilings and form else 0.0
    if not (
        words.finite(step) and step > 0 and words.finite(top) and top > 0 and compute.flops > 0
    ):
        return ""
    reached = compute.flops / step
    return (
        f"A step reaches {words.share(reached / top)} of this machine's {form} matrix "
        f"speed ({words.rate(reached, 'FLOP/s')} of {words.rate(top, 'FLOP/s')})."
    )


def _tuned(session: Session) -> Verdict:
    accepted = list(dict.fromkeys(words.plain(t.remedy) for t in session.trials if t.accepted))
    names = {t.remedy for t in session.trials if t.was_tried}
    tried = counted(len(names), "remedy", "remedies")
    if session.speedup is None or not accepted:
        said = f"{tried} tried." if names else "No remedy was tried."
        detail = f"{said} {bound_sentence(session)}"
        if unproven := _unproven(session):
            named = ", ".join(f"{words.plain(t.remedy)} {words.gain(t.measured)}" for t in unproven)
            found = counted(len(unproven), "faster remedy was", "faster remedies were")
            headline = f"{found} found, but quality is not proven."
            return Verdict(headline, f"Not proven: {named}. {detail}", "warn")
        if session.trials and not names:
            too_short = "The script is too short for a remedy to be tried."
            no_time = "There was no time to try a remedy."
            return Verdict(too_short if _too_short(session) else no_time, detail, "warn")
        return Verdict("No remedy made this training faster.", detail, "plain")
    was = bound_sentence(session).replace("Bound", "It was bound", 1)
    detail = f"{len(accepted)} of {tried} accepted: {', '.join(accepted)}. {was}"
    if not session.speedup.is_gain:
        return Verdict(f"No speed-up could be shown: {_speed(session)}.", detail, "warn")
    quality, tone = _quality(session.proof)
    return Verdict(f"{_speed(session)}, {quality}.", detail, tone)


def _unproven(session: Session) -> list[Trial]:
    """Remedies that were measured faster and that the proof left out, or did not come to keep."""
    return [
        trial
        for trial in session.trials
        if trial.measured is not None
        and trial.measured.is_gain
        and (trial.accepted or trial.reason.startswith("left out:"))
    ]


def _speed(session: Session) -> str:
    speed = session.speedup
    if speed is None:
        return ""
    inner = ", ".join(filter(None, (words.interval(speed), speed.how)))
    return f"{words.times(speed.speedup)} as fast ({inner})"


def _quality(proof: Proof | None) -> tuple[str, Tone]:
    if proof is None:
        return "but quality was not tested", "warn"
    if not proof.needed and proof.proven:
        return "with the same numbers bit for bit", "good"
    if proof.proven:
        by_metrics = any(curve.metrics for curve in proof.curves) and not proof.reason
        what = "model" if by_metrics else "training loss"
        return f"and the {what} is proven no worse", "good"
    return "but the model is not proven to be as good", "warn"


def proof_sentence(proof: Proof | None) -> str:
    """What the quality test showed, with its margin and confidence."""
    if proof is None:
        return "No quality test was made."
    reason = words.plain(proof.reason)
    if not proof.needed:
        return reason or "Not needed: every remedy of the recipe keeps the same bits."
    head = "No worse" if proof.proven else "Not proven"
    if proof.difference is None or proof.high is None:
        return f"{head}: {reason}" if reason else f"{head}."
    name = words.plain(proof.measure)
    side = "worse" if proof.difference > 0 else "better"
    most, margin = _percent(proof.high), _percent(proof.margin)
    if most == margin:  # else what was refused by a hair would read as if it had passed
        most = _percent(proof.high, 4)
    limit = f"at most {most} worse"
    if proof.high < 0:  # with that much confidence it is better
        limit = f"at least {_percent(-proof.high)} better"
    sure = f"with {_percent(proof.confidence)} confidence"
    found = f"is {_percent(abs(proof.difference))} {side}, {limit} {sure}"
    if max(abs(proof.difference), abs(proof.high)) < NOTHING:
        found = "is the same but for rounding"
    figures = (
        f"over {counted(proof.seeds, 'seed')} of {counted(proof.steps, 'step')} the {name} {found}; "
        f"the margin is {margin} of {part_of(proof)}"
    )
    return f"{head}: {figures}." + (f" {reason[0].upper()}{reason[1:]}." if reason else "")


def part_of(proof: Proof) -> str:
    """What a proof's difference and margin are shares of."""
    return "the baseline's fall" if proof.measure == "loss" else "the metric itself"


def _percent(value: float, digits: int = 2) -> str:
    return f"{words.number(100 * value, digits)} %" if words.finite(value) else words.MISSING


def overhead_sentence(overhead: Overhead | None) -> str:
    """What watching cost, measured in the same run."""
    if overhead is None or overhead.step_high > UNKNOWN:
        return "What watching costs could not be measured: too few rounds."
    step, cpu = overhead.step_ratio, overhead.cpu_ratio
    if step <= 1 and cpu <= 1:
        figures = f"a step's time changed by {words.change(step)}, its CPU time by"
        return f"Watching costs nothing beyond the noise: {figures} {words.change(cpu)}."
    within = ""
    if overhead.step_high:
        within = f" ({words.change(overhead.step_low)} to {words.change(overhead.step_high)})"
    return (
        f"Watching costs {words.change(step)}{within} of a step's time and "
        f"{words.change(cpu)} of its CPU time."
    )


def ledger_span(session: Session) -> str:
    """What the ledger's rows add up to: the whole run where its length is known, or what was seen."""
    run = session.evidence.run
    total = sum(row.seconds for row in session.ledger if words.finite(row.seconds))
    seen = counted(session.steps.count, "step")
    if run.total_steps and not run.finished and total > 1.01 * run.wall_s:
        steps = counted(run.total_steps, "step")
        return f"{words.seconds(total)}: the whole run of {steps}, from {seen} seen"
    return f"{words.seconds(total)}, {seen}"


def recipe_file(session: Session) -> str:
    """The recipe as it is named in a command that is given in the target's directory."""
    return words.place(session.recipe, session.target.cwd) or "outpace.toml"


def not_in_diff(session: Session) -> str:
    """Which remedies the diff is without; nothing where it has all."""
    if not session.not_in_diff:
        return ""
    names = ", ".join(session.not_in_diff)
    return f"Not in the diff, as they cannot be written there: {names}. The recipe has them."


def next_steps(session: Session, folder: Path | str | None = None) -> list[Next]:
    """What to type next. ``folder`` is where the session is kept, if it is."""
    steps = _next_commands(session)
    if folder is not None and session.outcome == "done":
        report = words.command("outpace", "report", str(folder), "-o", "report.html")
        steps.append(Next(report, "all of this with charts in one file"))
    return steps


def bare_command(target: Target) -> str:
    """The target as it is run without outpace."""
    interpreter = [] if target.kind == "command" else ["python"]
    return words.command(*interpreter, *target.words)


def _too_short(session: Session) -> bool:
    """Whether more time for tuning would let nothing more be tried."""
    return any(TOO_SHORT in trial.reason for trial in session.trials)


def _minutes_for_trials(session: Session) -> int:
    """Twice what was too little, and three at the least; with room for a proof that was not begun."""
    needed = session.proof.needed_s if session.proof is not None else 0.0
    enough = (session.seconds + needed) / (1 - OF_TRIALS) if needed else 0.0
    return max(3, math.ceil(max(2 * session.seconds, enough) / 60))


def _next_commands(session: Session) -> list[Next]:
    target = session.target
    step = session.evidence.run.from_step
    begin = ("--from", str(step)) if step else ()
    if session.outcome in ("failed", "no training"):
        does = "does it train to its end by itself? then see what --allow FOLDER does"
        return [Next(bare_command(target), does)]
    if session.outcome == "interrupted":
        return [
            Next(
                words.outpace(session.command, target, *begin),
                "starts again, with your other options",
            )
        ]
    if session.command == "tune" and session.recipe and any(t.accepted for t in session.trials):
        run = words.outpace("run", target, "--recipe", recipe_file(session))
        return [Next(run, "trains with the recipe, the script unchanged")]
    untried = session.trials and not any(trial.was_tried for trial in session.trials)
    if session.command == "tune" and untried and _too_short(session):
        return [Next(bare_command(target), "a run of more steps can be tuned")]
    if session.proof is not None and session.proof.reason == NO_METRIC:
        does = "once it tells outpace.log(reward=...) how good it is, tune proves by that"
        return [Next(bare_command(target), does)]
    left_out = _unproven(session)
    refuted = session.proof is not None and session.proof.refuted
    others = {t.remedy for t in session.trials if t.was_tried} - {t.remedy for t in left_out}
    if session.command == "tune" and left_out and refuted and others:
        worse = ",".join(dict.fromkeys(trial.remedy for trial in left_out))
        without = words.outpace("tune", target, "--skip", worse, *begin)
        return [Next(without, "tries the others alone")]
    if session.command == "tune" and (untried or (left_out and not refuted)):
        minutes = f"{_minutes_for_trials(session)}m"
        longer = words.outpace("tune", target, "--time", minutes, *begin)
        proof = "gives the proof more time, with your other options"
        return [Next(longer, "gives the trials time" if untried else proof)]
    if session.command == "tune":
        return [Next(bare_command(target), "no recipe was made: nothing that was tried pays")]
    advised = [each for finding in session.findings for each in finding.remedies]
    if any(not each.by_hand for each in advised):
        tune = words.outpace("tune", target, *begin)
        return [Next(tune, "measures the remedies and proves quality")]
    if advised:
        page = words.command("outpace", "remedies", advised[0].name)
        return [Next(page, "says what to change by hand")]
    return []

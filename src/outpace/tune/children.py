"""Processes of the target that measure: started, waited for, started again where that helps.

``Launch`` comes from above (`outpace.adapters`): it runs the target with an entry point of ours
called in it as soon as torch is imported, and returns its exit code.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol

import msgspec

from outpace.errors import Interrupted, OutpaceError
from outpace.measure.sampler import WORKER
from outpace.records.arm import COMMUNICATION_FREE
from outpace.records.evidence import Evidence, Rank
from outpace.records.files import read_json, write_json
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.ledger import with_ending
from outpace.records.trial import Settings, Trial
from outpace.tune.files import (
    CONTESTS,
    EVIDENCE,
    LOSSES,
    MARKER,
    STATUS,
    TRIALS,
    read,
    write,
)
from outpace.tune.prove import Losses
from outpace.tune.silence import hung

MOST_RUNS = 8
"""times a script that ends before all is measured is run again"""
SIZED = ("batch_half", "batch_double")
"""arms that a script takes or fails in together: it may count on batches of its own size"""
WHOLE_RECIPE = ("accepted", "recipe", "cold", "without")
"""arms of the trials in which all that is accepted is at work, or all but one"""
WHOLE = ("run", "steps", "ledger", "loss", "health")
WATCHED = {
    "input": (
        *("wait_s", "fetch_s", "fetch_cpu_s", "collate_s", "decode_s", "parse_s", "storage_s"),
        *("ipc_s", "epoch_start_s", "read_bytes", "places", "worker_growth_bytes"),
        *(
            "read_s",
            "kind_places",
            "restarts",
            "forked_s",
            "reworked_s",
            "reworked_where",
            "reworked_by_reading",
            "interrupted",
            "shared",
        ),
    ),
    "compute": ("forward_s", "backward_s", "optimizer_s", "by_hand", "page_faults", "system_s"),
    "memory": (
        *("growth_bytes_step", "growth_low", "growth_room", "growth_seen_by"),
        *("retained_where", "retained_name", "retained_data"),
    ),
}
"""evidence that a run gives while it is watched as it is, whole or by its parts"""


Tell = Callable[[str, float, float, str], None]
"""phase, done, total, and what of it"""


class Launch(Protocol):
    """Run the target to its end, or to ours; the exit code, as a shell would see it."""

    def __call__(
        self, entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]
    ) -> int: ...


@dataclass
class Measured:
    """What came of measuring a target."""

    evidence: Evidence | None
    exit_code: int
    notes: list[str] = field(default_factory=list)
    another: Mapping[str, Any] | None = None
    """the training that follows it, as of `outpace.measure.trainings.Another`"""
    contests: Mapping[str, Any] = field(default_factory=dict)
    """what was compared by then"""
    spent_s: float = 0.0


def measure_training(
    launch: Launch,
    spec: dict[str, Any],
    folder: Path,
    least_s: float = 0.0,
    earlier: Measured | None = None,
    *,
    stays: bool = False,
) -> Measured:
    """Run the target until its evidence is complete, the time is spent, or another training follows.

    A script that ends before its arms are measured is run again, but for a training shorter than
    ``least_s``, and so is one whose training another one follows where it ``stays`` at it. An arm in
    which the process died is left out of the next run. What is known ``earlier`` is gone on with. The time
    is for experiments; with ``spec["from_start"]`` what the script takes to begin counts too.
    """
    excluded: dict[str, str] = {}
    first = evidence = whole = earlier.evidence if earlier is not None else None
    another = earlier.another if earlier is not None else None
    contests: Mapping[str, Any] = earlier.contests if earlier is not None else {}
    spent = earlier.spent_s if earlier is not None else 0.0
    code, runs, advance = 0, int(earlier is not None), -1
    if earlier is None:
        (folder / CONTESTS).unlink(missing_ok=True)  # of another script that had this folder
    notes: list[str] = []
    ended: dict[str, Any] = {}
    while runs < MOST_RUNS:
        for name in (MARKER, STATUS):
            (folder / name).unlink(missing_ok=True)
        for name in (EVIDENCE, WORKER.format(loader="*", pid="*")):
            for old in [*folder.glob(name), *folder.glob(f"rank-*/{name}")]:
                old.unlink(missing_ok=True)
        again = runs > 0
        begun = monotonic()
        try:
            code = launch(
                "outpace.tune.experiment:begin",
                {**spec, "excluded": excluded, "again": again, "spent_s": spent},
                folder,
                {},
            )
        except KeyboardInterrupt:
            first = first or _read_evidence(
                folder
            )  # of a first run after one that looked for its begin
            if first is None:
                raise
            code, evidence = Interrupted.exit_code, first
            break
        runs += 1
        arm = read(folder / MARKER, {}).get("arm", "")
        evidence = _read_evidence(folder)
        ended, contests = read(folder / STATUS, {}), read(folder / CONTESTS, {})
        another = ended.get("another") or another
        if code != 0 and evidence is not None and _is_altered(ended):
            notes.append(_told_altered(f"ended with exit code {code}"))
            code = 0
        if evidence is not None and evidence.run.finished and code == 0:
            evidence = _ended(evidence, time() - (folder / EVIDENCE).stat().st_mtime)
        first = first or evidence
        if code == Interrupted.exit_code and runs == 1:
            break  # by Ctrl-C, whatever arm it was in
        if code != 0 and not ended.get("over") and arm not in ("", "as_is", "input_free"):
            failed = f"the process ended with exit code {code} in this arm"
            excluded.update(dict.fromkeys(SIZED if arm in SIZED else (arm,), failed))
            if runs == 1:
                print(
                    f"outpace: the script ended with exit code {code} in an experiment, {arm}; it is "
                    "run again without that",
                    file=sys.stderr,
                )
            continue
        if code != 0 and whole is not None:
            notes.append(
                f"the target ended well, but with exit code {code} when it was run again to measure"
                " the rest; what it printed is in the session's folder"
            )
            code, evidence = 0, whole
            break
        over = evidence is not None and (evidence.run.finished or bool(ended.get("another")))
        if evidence is None or code != 0 or not over:
            break
        if any(folder.glob(f"rank-*/{EVIDENCE}")):
            break  # Ranks compare in any run what they can, and only within one.
        whole = evidence
        free_s = 0.0 if spec.get("from_start") else evidence.run.to_first_step_s
        spent += max(0.0, monotonic() - begun - free_s)
        done = sum(a.rounds for a in evidence.arms)
        if not evidence.steps.count or spent >= contests.get("time_s", math.inf) or done == advance:
            break
        if contests.get("complete"):
            break
        if not stays and (ended.get("another") or evidence.run.trained_s < least_s):
            break
        advance = done
    if first is not None and evidence is not None and first is not evidence:
        evidence = join(first, evidence)
    if evidence is not None and (others := sorted(folder.glob(f"rank-*/{EVIDENCE}"), key=_rank_of)):
        every = [evidence, *(read_json(path, Evidence) for path in others)]
        ranks = tuple(rank for i, one in enumerate(every) if (rank := _rank(i, one)) is not None)
        if len(ranks) == evidence.world:  # the slowest may be among those that are missing
            evidence = msgspec.structs.replace(evidence, ranks=ranks)
        else:
            notes.append(
                f"{len(ranks)} of {evidence.world} ranks could be measured without exchanging gradients: "
                "which of them is the slowest is not told"
            )
    sized = [excluded.pop(name) for name in SIZED if name in excluded]
    if sized:
        notes.append(
            "the script failed with a batch's half, or with two batches made one, so that what a step costs "
            f"whatever its batch could not be measured by these: {sized[0]}"
        )
    notes += [f"{k}: {v}" for k, v in excluded.items()]
    found = evidence or first
    if found is None and code == 0 and "broken" in ended:
        raise OutpaceError(
            f"nothing could be measured, by a fault of outpace's own: {ended['broken']}",
            "please report it with the lines above",
        )
    if found is not None:
        write_json(folder / EVIDENCE, found)  # trials go by it
    if found is None and "made" in ended:
        notes.append(f"the script's optimizers made {ended['made']:,} steps in all")
    notes = list(dict.fromkeys(notes))
    return Measured(found, code, notes, another, contests, spent)


def _is_altered(ended: Mapping[str, Any]) -> bool:
    """Whether the target's training came to its end, other than it would have by itself.

    A script may judge by its result: its exit code tells of what the experiments made of that.
    """
    return bool(ended.get("over") and ended.get("changed"))


def _told_altered(how: str) -> str:
    return (
        f"the target {how} after experiments had changed its training; run it by itself to see how it "
        "ends"
    )


def _rank_of(path: Path) -> int:
    return int(path.parent.name.removeprefix("rank-"))


def _ended(evidence: Evidence, seconds: float) -> Evidence:
    """With what the process took from its last line, where the evidence is written, to its end."""
    seconds, run = max(0.0, seconds), evidence.run
    if run.estimated_s is not None:
        run = msgspec.structs.replace(run, estimated_s=run.estimated_s + seconds)
    run = msgspec.structs.replace(run, wall_s=run.wall_s + seconds)
    rows = tuple(with_ending(evidence.ledger, seconds))
    return msgspec.structs.replace(evidence, run=run, ledger=rows)


def join(first: Evidence, last: Evidence) -> Evidence:
    """The run as it was seen first, whole and undisturbed, with what later runs measured."""
    joined = {name: getattr(first, name) for name in WHOLE}
    for part, names in WATCHED.items():
        seen = getattr(first, part)
        facts = {name: getattr(seen, name) for name in names}
        joined[part] = msgspec.structs.replace(getattr(last, part), **facts)
    return msgspec.structs.replace(last, **joined)


def _rank(index: int, evidence: Evidence) -> Rank | None:
    free = evidence.arm(COMMUNICATION_FREE)
    if free is None:
        return None
    step, data = evidence.steps.mean_s, evidence.input
    place = data.places[0][0] if data.places else data.where
    return Rank(index, step, free.gain, data.wait_s, place, evidence.compute.where)


def _read_evidence(folder: Path) -> Evidence | None:
    path = folder / EVIDENCE
    return read_json(path, Evidence) if path.exists() else None


@dataclass
class Tried:
    """What came of the trials."""

    trials: list[Trial]
    final: dict[str, Any]
    notes: tuple[str, ...] = ()
    """what failed, on our side or the target's"""
    excluded: tuple[str, ...] = ()
    """arms that the target died in"""
    too_short: bool = False
    """the script was over before all was tried, again and again"""
    failed: bool = False
    """the target failed by itself when it was run again"""


def try_remedies(launch: Launch, spec: dict[str, Any], folder: Path) -> Tried:
    """Try remedies in processes of the target, again where it ends too soon or dies in an arm."""
    excluded: dict[str, str] = {}
    notes: list[str] = []
    for old in (TRIALS, EVIDENCE):
        (folder / old).unlink(missing_ok=True)
    before: dict[str, Any] | None = None
    too_short = failed = False
    begun = monotonic()
    deadline = begun + float(spec["time_s"])
    for _ in range(MOST_RUNS):
        for old in (MARKER, STATUS):
            (folder / old).unlink(missing_ok=True)
        full = {**spec, "excluded": excluded, "spent_s": monotonic() - begun}
        code = launch("outpace.tune.trials:begin", full, folder, {})
        arm = read(folder / MARKER, {}).get("arm", "")
        ended = read(folder / STATUS, {})
        how = hung(folder) or f"ended with exit code {code}"
        if code != 0 and _is_altered(ended):
            notes.append(_told_altered(how))
        elif code != 0 and (ended.get("over") or arm in ("", "as_is", *WHOLE_RECIPE)):
            notes.append(
                f"the target {how} when it was run again to try remedies; what it printed is in the "
                "session's folder"
            )
            if arm in WHOLE_RECIPE and not ended.get("over"):
                _take_back(folder, f"the process {how} under all that was accepted")
            failed, too_short = True, False
            break
        elif code != 0:
            excluded[arm] = f"the process {how} under this remedy"
            _take_back(folder, excluded[arm], arm)
            if monotonic() > deadline:
                break
            continue
        known = read(folder / TRIALS, {})
        too_short = bool(ended.get("finished") or ended.get("another"))
        if not too_short or known == before or monotonic() > deadline:
            break
        before = known
    trials, evidence = tried_by_now(folder), _read_evidence(folder)
    told = {trial.remedy for trial in trials}
    notes += [f"{arm}: {reason}" for arm, reason in excluded.items() if arm not in told]
    notes += [f"in the trials, {note}" for note in (evidence.notes if evidence else ())]
    final = read(folder / TRIALS, {}).get("final", {})
    return Tried(trials, final, tuple(dict.fromkeys(notes)), tuple(excluded), too_short, failed)


def _take_back(folder: Path, why: str, only: str | None = None) -> None:
    """The target dies of what was accepted: of all, taken together, or of that remedy, late in its trial."""
    trials = [
        msgspec.structs.replace(each, accepted=False, reason=f"{each.reason}, and {why}")
        if each.accepted and only in (None, each.remedy)
        else each
        for each in tried_by_now(folder)
    ]
    write_trials(folder, trials)


def write_trials(folder: Path, trials: list[Trial]) -> None:
    """Keep them for whoever ends it before its time; no whole recipe was compared."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / TRIALS, {"trials": [msgspec.to_builtins(t) for t in trials], "final": {}})


def tried_by_now(folder: Path) -> list[Trial]:
    """The trials that were made to their end, also where the others were cut off."""
    return [msgspec.convert(t, Trial) for t in read(folder / TRIALS, {}).get("trials", [])]


def run_for_losses(
    launch: Launch,
    remedies: list[tuple[str, Settings]],
    folder: Path,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    shift: int = 0,
    every_step: bool = False,
    from_step: int = 0,
    env: Mapping[str, str] | None = None,
    silent_s: float | None = None,
) -> tuple[Losses | None, list[float], list[float]]:
    """Run so many steps, or seconds, under a recipe: losses, wall and CPU seconds of its steps.

    ``every_step``: those too in which an epoch began, or something other than training was done.
    ``from_step``: the recipe is at work before it too, which is not noted. ``silent_s``: seconds after
    which the run is taken to hang.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOSSES).unlink(missing_ok=True)
    spec = {
        "remedies": [{"name": n, "settings": s} for n, s in remedies],
        "seed_shift": shift,
        "seed_unseeded": True,
        "stop_after": steps,
        "stop_after_s": seconds,
        "losses": True,
        "every_step": every_step,
        "from_step": from_step,
        "silent_s": silent_s,
    }
    code = launch("outpace.tune.apply:begin", spec, folder, env or {})
    noted = read(folder / LOSSES)
    if code != 0 or not noted:
        return None, [], []
    values = tuple(v if v is not None else math.nan for v in noted["values"])
    metrics, state = noted.get("metrics", {}), noted.get("state")
    awaited = noted.get("awaited", False) and not metrics
    losses = Losses(tuple(noted["samples"]), values, metrics, state, awaited)
    return losses, noted["seconds"], noted["cpu_seconds"]


def total_gain(evidence: Evidence, final: Mapping[str, Any]) -> Gain | None:
    """Speed-up of the whole run: its steps faster, its first epoch as cold, the rest as it was.

    That goes for epochs' starts too, which no trial of steps has timed; a gain of whole "epochs" is
    one of all but the run's start and end. Cold is: nothing kept yet, and memory taken for what will
    be. Compiling comes once, to what is as it was.
    """
    warm, cold = _gain(final, "recipe"), _gain(final, "cold")
    if warm is None:
        return None
    whole = _gain(final, "epochs") or NO_GAIN
    steps, once = evidence.in_steps_s, evidence.once_s
    total = evidence.whole_s or 1.0
    first = 1 / evidence.passes if cold is not None else 0.0
    images, kept = evidence.input.images, float(final.get("kept", 1.0))
    keeping = images.keeping_s * kept * (evidence.input.samples or 0) if cold and images else 0.0
    keeping *= _seen(evidence)
    cold = cold or warm
    compiling_s = float(final.get("compiling_s", 0.0))

    def at(one: float, other: float, epochs: float) -> float:
        later = kept / max(other, 1e-6) + (1 - kept) / max(one, 1e-6)
        inside = first / max(one, 1e-6) + (1 - first) * later
        rest = total - once - steps + steps * inside + keeping
        return total / (once + compiling_s + rest / max(epochs, 1e-6))

    compared = warm.how == "measured" and first == compiling_s == 0.0 and steps / total > 0.95
    return Gain(
        at(cold.speedup, warm.speedup, whole.speedup),
        at(cold.low, warm.low, whole.low),
        at(cold.high, warm.high, whole.high),
        "measured" if compared else "predicted",
    )


def _seen(evidence: Evidence) -> float:
    """The part of the run that the ledger tells of: all, but where its length is not known."""
    run = evidence.run
    if run.total_steps is not None or run.finished or not run.epoch_steps:
        return 1.0
    return min(1.0, evidence.steps.count / (evidence.input.likely_epochs * run.epoch_steps))


def _gain(final: Mapping[str, Any], name: str) -> Gain | None:
    found = final.get(name)
    return None if found is None else msgspec.convert(found["gain"], Gain)

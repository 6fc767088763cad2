"""When a script's training ends, and what would make it end sooner, from what was measured of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from outpace.errors import UsageError
from outpace.plan.changes import How, changes
from outpace.plan.epochs import steps_of_epoch, validations
from outpace.plan.hardware import Device
from outpace.records.evidence import Evidence
from outpace.records.finding import Advice, Finding, GainOf
from outpace.records.gain import Gain
from outpace.records.ledger import ONCE
from outpace.records.plan import Estimate, Option

RUN_TO_RUN = 1.28
"""times that the steps of another run may take: of 132 runs in the truth bench eight in ten were within
1.19 of their script's median, and two runs are both off it, by 1.19 to the square root of 2"""
LEAST = 1.02
"""times as fast that a change must make the steps, to be told"""
LEAST_S = 1e-9
"""what is told of less is a rounding error"""
Objective = Literal["time", "cost", "scale"]


def steps_of(
    evidence: Evidence, steps: int | None, epochs: int | None, samples: int | None
) -> int | None:
    """Steps of a training that is said to be so long; None where nothing is said.

    Raises UsageError where epochs or samples are said, and how many steps that is is not known.
    """
    if steps is not None:
        return steps
    if epochs is not None:
        epoch = steps_of_epoch(evidence)
        if epoch is None:
            raise UsageError(
                "how many steps an epoch has could not be found", "say the length with --steps"
            )
        return max(1, round(epochs * epoch))
    if samples is not None:
        if not evidence.samples_a_step:
            raise UsageError(
                "how many samples a step has could not be found", "say the length with --steps"
            )
        return max(1, round(samples / evidence.samples_a_step))
    return None


def finish(evidence: Evidence, steps: int | None = None) -> Estimate:
    """Seconds that the whole training takes, or so many of its steps.

    Raises UsageError where nothing says how long it is.
    """
    seen = steps_seen(evidence)
    if steps is None and not evidence.run.finished and evidence.run.total_steps is None:
        raise UsageError(
            "how many steps the training has could not be found",
            "say so with --steps, --epochs or --samples, before the script's name",
        )
    wanted = steps or seen
    found, fixed, more = terms(evidence, wanted), _fixed_s(evidence), _unseen(evidence, wanted)
    rest = sum(found.values()) - fixed - more.estimate
    unsure = [one for one in evidence.run.recurring if not one.sure]
    doubted = sum(max(0.0, one.seconds(wanted) - one.each_s) for one in unsure)
    return Estimate(
        sum(found.values()),
        fixed + (rest - doubted) / RUN_TO_RUN + more.low,
        fixed + rest * RUN_TO_RUN + more.high,
    )


def terms(evidence: Evidence, steps: int) -> dict[str, float]:
    """Seconds of a training of so many steps, by what they are for: what a faster step leaves as it is, and
    the steps.
    """
    watched_as = 1 / watched(evidence)
    times = steps / steps_seen(evidence) * watched_as
    found: defaultdict[str, float] = defaultdict(float)
    found["steps"] = evidence.in_steps_s * times
    for row in evidence.ledger:
        if row.name in ONCE:
            found[row.name] += row.seconds
    for row in evidence.now_and_then:
        found[row.name] += row.seconds * times
    grown = _grown(evidence, steps) * watched_as
    found["elsewhere" if grown > 0 else "steps"] += grown
    found["epoch_start"] += evidence.run.starts_s * times
    total = evidence.run.total_steps
    for one in evidence.run.recurring:  # not with the steps, but as often as these say
        in_ledger = one.seconds(total) if total else one.so_far_s
        name = "epoch_start" if one.name == "input" else one.name
        found[name] += one.seconds(steps) - in_ledger * times
    found["logging"] += evidence.run.told_s * times  # in the ledger, but not in the steps
    found["validation"] += _unseen(evidence, steps).estimate
    found["earlier"] = evidence.run.before_s
    return {name: seconds for name, seconds in found.items() if abs(seconds) > LEAST_S}


def _fixed_s(evidence: Evidence) -> float:
    """Seconds that are spent once, however long the training is, another one before it included."""
    return evidence.once_s + evidence.run.before_s


def _grown(evidence: Evidence, steps: int) -> float:
    """Seconds that so many steps take longer than as many like those that were looked at.

    Each takes longer by the same than the one before it, so that they grow with the square of the length.
    """
    run, seen = evidence.run, steps_seen(evidence)
    return steps * (run.grown_s / seen + run.slope_s * (steps - seen) / 2)


def watched(evidence: Evidence) -> float:
    """Times as long as a step took for being watched; 1 where it is not sure that it took longer."""
    cost = evidence.overhead
    return cost.step_ratio if cost is not None and cost.step_low > 1.0 else 1.0


def steps_seen(evidence: Evidence) -> int:
    """Steps that the ledger is of; UsageError where there is none."""
    seen = evidence.run.total_steps
    if evidence.run.finished or seen is None:
        seen = evidence.steps.count
    if not seen:
        raise UsageError("no step of a training was seen", "see what `outpace diagnose` says of it")
    return seen


def _unseen(evidence: Evidence, steps: int) -> Estimate:
    """Seconds of validations that are to be expected though none was seen."""
    expected = validations(evidence, steps)
    return expected[1] if expected is not None else Estimate(0.0, 0.0, 0.0)


def options(
    evidence: Evidence,
    findings: tuple[Finding, ...],
    seconds: Estimate,
    available_s: float | None,
    usd_per_hour: float | None,
    objective: Objective = "time",
    steps: int | None = None,
    *,
    cost: float | None = None,
    device: Device | None = None,
    count: int = 1,
) -> tuple[Option, ...]:
    """Changes that end it sooner, the best first: remedies, and what else would.

    ``objective``: the soonest first, the cheapest, or those with which most training fits the time.
    ``steps``: of the training, where that was said. ``cost``: USD that it may cost. ``device``: one that was
    asked about, and ``count`` of it.
    """
    fixed = _fixed_s(evidence)
    length = steps or steps_seen(evidence)
    outside = _outside(evidence, length)
    found = []
    for advice in _advised(findings):
        gain = advice.predicted
        if advice.gain_of == "run":
            gain = _of_this_run(evidence, gain, length)
        sooner = _sped_up(seconds, gain, outside[advice.gain_of])
        found.append(_option(advice.name, advice.keeps, sooner, usd_per_hour))
    for change in changes(evidence, device, count):
        asked = objective == "cost" and device is not None and change.device == device
        if change.speedup <= LEAST and not asked:  # a slower one may be cheaper
            continue
        gain = Gain(change.speedup, change.low, change.high, "predicted")
        price = change.device.usd_per_hour if change.device is not None else usd_per_hour
        price = price * change.count if price is not None else None
        sped_up = _sped_up(seconds, gain, outside["steps"])
        whose = change.device.price if change.device is not None else None
        found.append(_option(change.name, change.keeps, sped_up, price, change.how, whose))
    if objective == "scale" and available_s is not None:
        found = [_scaled(option, available_s, fixed) for option in found]
    limit = _limit(available_s, usd_per_hour, cost)
    cut = objective != "scale"  # what is cut off is no more training in the time
    if cut and fixed < limit < seconds.estimate:
        share = (limit - fixed) / max(1e-9, seconds.estimate - fixed)
        at_most = Estimate(
            *(fixed + share * (s - fixed) for s in (seconds.estimate, seconds.low, seconds.high))
        )
        name = f"{_percent(share)} % of the steps"
        found.append(_option(name, "learning", at_most, usd_per_hour))
    if objective == "cost":
        found.sort(key=lambda o: (o.usd is None, o.usd.estimate if o.usd else o.hours.estimate))
    else:
        found.sort(key=lambda o: o.hours.estimate)
    return tuple(found)


def _limit(available_s: float | None, usd_per_hour: float | None, cost: float | None) -> float:
    """Seconds that there is time for, and money for this machine."""
    time = available_s if available_s is not None else math.inf
    return min(time, 3600 * cost / usd_per_hour) if cost is not None and usd_per_hour else time


def _scaled(option: Option, available_s: float, fixed: float) -> Option:
    """With how much of the training fits the time: what is spent once is, whatever that is."""
    grows = max(1e-9, 3600 * option.hours.estimate - fixed)
    return replace(option, scale=max(0.0, available_s - fixed) / grows)


def _percent(share: float) -> str:
    """Rounded down, as what is cut off has to fit; of less than one percent two digits."""
    percent = 100 * share
    digits = max(0, 1 - math.floor(math.log10(percent))) if percent < 1 else 0
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f}"


def _outside(evidence: Evidence, steps: int) -> dict[GainOf, float]:
    """Share of the whole run that a gain leaves as it is: of steps, all that is outside of them."""
    found = terms(evidence, steps)
    whole = max(LEAST_S, sum(found.values()))
    inside: dict[GainOf, float] = {
        "steps": found.get("steps", 0.0),
        "epochs": whole - _fixed_s(evidence),
        "run": whole - evidence.run.before_s,
    }
    return {of: min(1.0, max(0.0, 1.0 - seconds / whole)) for of, seconds in inside.items()}


def _of_this_run(evidence: Evidence, gain: Gain, steps: int) -> Gain:
    """A gain of the run that the ledger is of, for one of so many steps: what is saved grows with them."""
    ledger = evidence.whole_s
    whole = max(LEAST_S, sum(terms(evidence, steps).values()) - evidence.run.before_s)
    here = max(0.0, 1.0 - evidence.once_s / whole)
    there = 1.0 - evidence.once_s / ledger if ledger > 0 else 0.0
    if there <= 0:
        return gain

    def restated(speedup: float) -> float:
        return 1.0 / max(LEAST_S, 1.0 - min((1.0 - 1.0 / speedup) * here / there, here))

    return replace(
        gain, speedup=restated(gain.speedup), low=restated(gain.low), high=restated(gain.high)
    )


def _advised(findings: tuple[Finding, ...]) -> Iterator[Advice]:
    names = set()
    for finding in findings:
        for advice in finding.remedies:
            if advice.name not in names and advice.predicted.speedup > 1:
                names.add(advice.name)
                yield advice


def _sped_up(seconds: Estimate, gain: Gain, outside: float) -> Estimate:
    def after(before: float, speedup: float) -> float:
        return before * (outside + (1 - outside) / speedup)

    return Estimate(
        after(seconds.estimate, gain.speedup),
        after(seconds.low, gain.high),
        after(seconds.high, gain.low),
    )


def _option(
    change: str,
    keeps: str,
    seconds: Estimate,
    usd_per_hour: float | None,
    how: How = "predicted",
    price: str | None = None,
) -> Option:
    hours = Estimate(*(s / 3600 for s in (seconds.estimate, seconds.low, seconds.high)))
    usd = None
    if usd_per_hour is not None:
        usd = Estimate(*(usd_per_hour * h for h in (hours.estimate, hours.low, hours.high)))
    return Option(change, keeps, hours, usd, how, price)

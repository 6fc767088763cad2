"""When a script's training ends, and what would make it end sooner, from what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from outpace.errors import UsageError
from outpace.plan.changes import How, changes
from outpace.plan.epochs import steps_of_epoch, validations
from outpace.records.evidence import Evidence
from outpace.records.finding import Advice, Finding
from outpace.records.gain import Gain
from outpace.records.plan import Estimate, Option

RUN_TO_RUN = 1.28
"""times that the steps of another run may take: of 132 runs in the truth bench eight in ten were within
1.19 of their script's median, and two runs are both off it, by 1.19 to the square root of 2"""
LEAST = 1.02
"""times as fast that a change must make the steps, to be told"""
Objective = Literal["time", "cost", "scale"]


def steps_of(
    evidence: Evidence, steps: int | None, epochs: int | None, samples: int | None
) -> int | None:
    """Steps of a training that is said to be so long; None where nothing is said.

    Raises UsageError where epochs are said, and how many batches one has is not known.
    """
    seen = evidence.steps
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
        together = seen.batch_size * seen.micro_steps * max(1, len(evidence.ranks))
        return max(1, round(samples / max(1, together)))
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
    wanted, fixed = steps or seen, evidence.once_s
    rest = sum(row.seconds for row in evidence.ledger) - fixed - recurring_s(evidence)
    rest = rest * wanted / seen / watched(evidence) + recurring_s(evidence, wanted)
    unsure = [one for one in evidence.run.recurring if not one.sure]
    doubted = sum(max(0.0, one.seconds(wanted) - one.each_s) for one in unsure)
    more = _unseen(evidence, wanted)
    return Estimate(
        fixed + rest + more.estimate,
        fixed + (rest - doubted) / RUN_TO_RUN + more.low,
        fixed + rest * RUN_TO_RUN + more.high,
    )


def watched(evidence: Evidence) -> float:
    """Times as long as a step took for being watched; 1 where it is not sure that it took longer."""
    cost = evidence.overhead
    return cost.step_ratio if cost is not None and cost.step_low > 1.0 else 1.0


def recurring_s(evidence: Evidence, steps: int | None = None) -> float:
    """Seconds of what comes outside of steps, in so many of them; None: as they are in the ledger."""
    steps = steps or evidence.run.total_steps
    came = evidence.run.recurring
    return sum(one.seconds(steps) if steps else one.so_far_s for one in came)


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
) -> tuple[Option, ...]:
    """Changes that end it sooner, the best first: remedies, and what else would.

    ``objective``: the soonest first, the cheapest, or those with which most training fits the time.
    ``steps``: of the training, where that was said.
    """
    fixed = evidence.once_s
    outside = _outside(evidence, seconds, steps or steps_seen(evidence))
    found = [
        _option(
            advice.name, advice.keeps, _sped_up(seconds, advice.predicted, outside), usd_per_hour
        )
        for advice in _advised(findings)
    ]
    for change in changes(evidence):
        if change.speedup <= LEAST:
            continue
        gain = Gain(change.speedup, change.low, change.high, "predicted")
        price = change.device.usd_per_hour if change.device is not None else usd_per_hour
        price = price * change.count if price is not None else None
        sped_up = _sped_up(seconds, gain, outside)
        whose = change.device.price if change.device is not None else None
        found.append(_option(change.name, change.keeps, sped_up, price, change.how, whose))
    cut = objective != "scale"  # what is cut off is no more training in the time
    if cut and available_s is not None and fixed < available_s < seconds.estimate:
        share = (available_s - fixed) / max(1e-9, seconds.estimate - fixed)
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


def _percent(share: float) -> str:
    """Rounded down, as what is cut off has to fit; of less than one percent two digits."""
    percent = 100 * share
    digits = max(0, 1 - math.floor(math.log10(percent))) if percent < 1 else 0
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f}"


def _outside(evidence: Evidence, seconds: Estimate, steps: int) -> float:
    """Share of the whole run outside of steps: what is spent once, and what grows with the steps."""
    if seconds.estimate <= 0:
        return 0.0
    come = {one.name: one.seconds(steps) for one in evidence.run.recurring}
    times = steps / steps_seen(evidence)
    growing = sum(come.get(row.name, row.seconds * times) for row in evidence.now_and_then)
    fixed, unseen = evidence.once_s, _unseen(evidence, steps).estimate
    return min(1.0, (fixed + growing + unseen) / seconds.estimate)


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

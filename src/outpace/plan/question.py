"""What was asked of `outpace plan`, and the answer in figures and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from outpace.errors import UsageError
from outpace.plan import scaling
from outpace.plan.budget import arithmetic, budget, duration
from outpace.plan.fit import between, fit, fitted, read_runs, resampled
from outpace.plan.forecast import finish, options
from outpace.plan.hardware import Device, device
from outpace.records.plan import (
    Budget,
    Estimate,
    Fit,
    Flops,
    Forecast,
    Given,
    LawName,
    Optimal,
    Plan,
)
from outpace.records.session import Session

KEEPS = {
    "exact": "the same bits",
    "numerics": "the same mathematics, with other rounding",
    "learning": "less: it is another training",
}


@dataclass(frozen=True)
class Question:
    """What is known and what is asked; seconds, FLOPs, tokens."""

    deadline: float | None = None
    reserves: Mapping[str, float] | None = None
    flops: float | None = None
    params: float | None = None
    tokens: float | None = None
    unique_tokens: float | None = None
    served_tokens: float | None = None
    device: str | None = None
    count: int = 1
    hours: float | None = None
    mfu: float = 0.4
    dtype: str = "bf16"
    law: LawName = "besiroglu"
    fit: Path | None = None
    """runs to fit a law to"""
    steps: int | None = None
    """of a script"""
    usd_per_hour: float | None = None

    def check_script(self) -> None:
        """Raise UsageError where a script is asked about, and something that is not of it."""
        _time(self)
        for name in ("flops", "params", "tokens", "device", "fit"):
            if getattr(self, name) is not None:
                raise UsageError(
                    f"--{name} is not of a script", "ask about the one or about the other"
                )


@dataclass(frozen=True)
class Chosen:
    """The law that answers, and how sure its constants are where they were fitted here."""

    name: LawName
    law: scaling.Law
    fit: Fit | None = None
    resampled: tuple[scaling.Parametric, ...] = ()

    def optimal(self, flops: float) -> Optimal:
        """The best split; with limits for its loss from the resampled laws."""
        best = scaling.optimal(self.law, flops)
        if not self.resampled:
            return best
        losses = [law.loss(best.parameters, best.tokens) for law in self.resampled]
        assert best.loss is not None
        return msgspec.structs.replace(best, loss=between(losses, best.loss.estimate))

    def sizes(self, flops: float) -> Estimate:
        """Parameters of the best split, with limits."""
        found = [law.parameters(flops) for law in self.resampled]
        return between(found, self.law.parameters(flops))


def chosen(asked: Question) -> Chosen:
    """The named law, or one fitted to the runs."""
    if asked.fit is None:
        return Chosen(asked.law, scaling.LAWS[asked.law])
    runs = read_runs(asked.fit)
    law = fit(runs)
    several = resampled(runs, law)
    return Chosen("fitted", law, fitted(runs, several, law), tuple(several))


def answer(asked: Question, measured: Session | None = None) -> tuple[Plan, list[str]]:
    """The plan, and lines that say it; of a script that was ``measured``, if one was.

    Raises UsageError where too little is known.
    """
    if measured is not None:
        return _of_script(asked, measured)
    law = chosen(asked)
    time = _time(asked)
    machine = device(asked.device) if asked.device is not None else None
    given = _given(asked, law)
    flops = _flops(asked, time, machine)
    if time is None and flops is None and law.fit is None:
        raise UsageError(
            "nothing was asked",
            "give a deadline, or --flops, or --params and --tokens, or a --device and its --hours",
        )
    found: dict[str, object] = {}
    if time is not None:
        found["budget"] = time
    if flops is not None:
        found["flops"] = flops
    if law.fit is not None:
        found.update(law=law.name, fit=law.fit)
    if given is not None:
        found["given"] = given
        if machine is not None:
            found["forecast"] = _forecast(asked, time, machine)
    if flops is not None:
        found.update(law=law.name, optimal=law.optimal(flops.total))
    plan = Plan(**found)  # type: ignore[arg-type]
    return plan, list(_lines(asked, plan, machine, law))


def _of_script(asked: Question, measured: Session) -> tuple[Plan, list[str]]:
    time = _time(asked)
    available = time.available_s if time is not None else None
    seconds = finish(measured.evidence, asked.steps)
    fits = available is None or seconds.estimate <= available
    found = options(measured.evidence, measured.findings, seconds, available, asked.usd_per_hour)
    plan = Plan(
        budget=time if time is not None else UNSET,
        forecast=Forecast(seconds, fits),
        options=found,
    )
    takes = f"{duration(seconds.low)} to {duration(seconds.high)}"
    verdict = "" if time is None else ", which fits" if fits else ", which does not fit"
    cost = asked.usd_per_hour and f"; ${asked.usd_per_hour * seconds.estimate / 3600:,.2f}"
    lines = [arithmetic(time)] if time is not None else []
    lines.append(
        f"{measured.target.name} takes {duration(seconds.estimate)} ({takes}){verdict}{cost or ''}"
    )
    width = max((len(option.change) for option in found), default=0)
    for option in found:
        hours = option.hours
        mark = ""
        if available is not None:
            mark = "fits     " if hours.estimate * 3600 <= available else "too late "
        lines.append(
            f"  {mark}{option.change:<{width}}  {duration(3600 * hours.estimate)} "
            f"({duration(3600 * hours.low)} to {duration(3600 * hours.high)}), {option.how}; "
            f"keeps {KEEPS[option.keeps]}"
        )
    if found:
        lines.append(
            "each change alone; `outpace tune` measures them together and proves the quality"
        )
    return plan, lines


def _time(asked: Question) -> Budget | None:
    if asked.deadline is None:
        if asked.reserves:
            raise UsageError("time is reserved, but of none", "say --deadline 24h or --by 06:00")
        return None
    return budget(asked.deadline, asked.reserves or {})


def _hours(asked: Question, time: Budget | None) -> float | None:
    """Hours of training: as asked, else what the deadline leaves."""
    if asked.hours is not None or time is None:
        return asked.hours
    return time.available_s / 3600


def _given(asked: Question, law: Chosen) -> Given | None:
    if asked.params is None and asked.tokens is None:
        return None
    if asked.params is None or asked.tokens is None:
        lacking = "--params" if asked.params is None else "--tokens"
        raise UsageError(f"{lacking} is missing", "a training has both --params and --tokens")
    tokens = asked.tokens
    if asked.unique_tokens is not None:
        tokens = scaling.tokens_worth(asked.unique_tokens, tokens / asked.unique_tokens)
    return scaling.judged(law.law, asked.params, tokens, asked.tokens)


def _flops(asked: Question, time: Budget | None, machine: Device | None) -> Flops | None:
    if asked.flops is not None:
        return Flops(asked.flops)
    if asked.params is not None and asked.tokens is not None:
        return Flops(scaling.PER_PARAMETER_AND_TOKEN * asked.params * asked.tokens)
    if machine is None:
        return None
    hours = _hours(asked, time)
    if hours is None:
        raise UsageError(f"for how long is {machine.name} at work?", "give --hours or --deadline")
    peak = machine.flops_per_s(asked.dtype)
    usd = machine.usd_per_hour * asked.count * hours if machine.usd_per_hour else None
    total = peak * asked.mfu * asked.count * hours * 3600
    return Flops(total, peak, asked.mfu, usd, machine.price)


def _forecast(asked: Question, time: Budget | None, machine: Device) -> Forecast:
    hours = _hours(asked, time)
    assert asked.params is not None
    assert asked.tokens is not None
    rate = machine.flops_per_s(asked.dtype) * asked.mfu * asked.count
    seconds = scaling.PER_PARAMETER_AND_TOKEN * asked.params * asked.tokens / rate
    return Forecast(Estimate(seconds, seconds, seconds), hours is None or seconds <= 3600 * hours)


def _lines(asked: Question, plan: Plan, machine: Device | None, law: Chosen) -> Iterator[str]:
    if law.fit is not None:
        yield f"fitted to {law.fit.runs} runs; limits hold 80 % of {len(law.resampled)} resamples"
        for name in ("e", "a", "b", "alpha", "beta"):
            found: Estimate = getattr(law.fit, name)
            yield f"  {name:<6} {found.estimate:<10.4g} {found.low:.4g} to {found.high:.4g}"
    if plan.budget:
        yield arithmetic(plan.budget)
    if plan.flops and plan.flops.peak_per_s is not None and machine is not None:
        hours = _hours(asked, plan.budget or None) or 0.0
        yield (
            f"{asked.count} {machine.name} for {duration(3600 * hours)} at {100 * asked.mfu:g} % of "
            f"{plan.flops.peak_per_s / 1e12:g} TFLOP/s ({asked.dtype}, dense): "
            f"{plan.flops.total:.3g} FLOPs{_price(plan.flops.usd, plan.flops.price)}"
        )
    if plan.forecast and machine is not None:
        seconds = plan.forecast.finish_s.estimate
        usd = machine.usd_per_hour * asked.count * seconds / 3600 if machine.usd_per_hour else None
        fits = "" if plan.forecast.fits else ", which does not fit"
        yield (
            f"{short(asked.params)} parameters on {short(asked.tokens)} tokens take "
            f"{duration(seconds)} on {asked.count} {machine.name}{fits}; not measured, at "
            f"{100 * asked.mfu:g} % of the peak{_price(usd, machine.price)}"
        )
    if plan.given and plan.optimal:
        yield from _judgement(asked, law, plan.given, plan.optimal)
    elif plan.optimal:
        yield (
            f"{law.name}: best with {_split(plan.optimal)}{_loss(plan.optimal.loss)}, "
            f"for {plan.flops.total:.3g} FLOPs"  # type: ignore[union-attr]
        )
        if law.resampled:
            sizes = law.sizes(plan.flops.total)  # type: ignore[union-attr]
            yield f"parameters from {short(sizes.low)} to {short(sizes.high)}"
    if asked.served_tokens is not None and plan.optimal:
        target = plan.given.loss if plan.given else plan.optimal.loss
        wanted = target.estimate if target is not None else math.nan
        served = scaling.with_inference(law.law, wanted, asked.served_tokens)
        yield (
            f"to serve {short(asked.served_tokens)} tokens at the same loss: {_split(served)} cost "
            "least, training and serving together"
        )
    if plan.optimal and law.fit is None:
        yield f"source: {law.law.source}"


def _judgement(asked: Question, law: Chosen, given: Given, best: Optimal) -> Iterator[str]:
    worth = ""
    if asked.unique_tokens is not None and asked.tokens is not None:
        epochs = asked.tokens / asked.unique_tokens
        worth = (
            f" ({epochs:.3g} epochs of {short(asked.unique_tokens)} tokens, worth "
            f"{short(given.tokens)} fresh ones)"
        )
    lost = f": {100 * given.wasted:.0f} % of the compute is wasted" if given.wasted else ""
    means = {
        "balanced": "as good as balanced",
        "compute-inefficient": f"compute-inefficient, too large for its data{lost}",
        "data-inefficient": f"data-inefficient, too small for its data{lost}",
    }
    yield (
        f"{law.name}: {short(asked.params)} parameters on {short(asked.tokens)} tokens"
        f"{worth}{_loss(given.loss)}; {means[given.verdict]}"
    )
    yield f"best for as much compute: {_split(best)}{_loss(best.loss)}"


def _split(found: Optimal) -> str:
    return (
        f"{short(found.parameters)} parameters on {short(found.tokens)} tokens "
        f"({found.tokens / found.parameters:.3g} a parameter)"
    )


def _loss(loss: Estimate | None) -> str:
    if loss is None:
        return ""
    limits = f" ({loss.low:.3f} to {loss.high:.3f})" if loss.high > loss.low else ""
    return f", loss {loss.estimate:.3f}{limits}"


def _price(usd: float | None, price: str | None) -> str:
    return f"; ${usd:,.0f} ({price})" if usd is not None else ""


def short(count: float | None) -> str:
    """A count as it is spoken of: 72.2B, 1.33T."""
    assert count is not None
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g}{letter}"
    return f"{count:.3g}"

"""What was asked of `outpace plan`, and the answer in figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from outpace.errors import UsageError
from outpace.plan import scaling
from outpace.plan.changes import on
from outpace.plan.elsewhere import in_tf32, step_on
from outpace.plan.epochs import notes
from outpace.plan.fit import between, depends, fit, fitted, left_out, read_runs, resampled
from outpace.plan.forecast import Objective, finish, options, steps_of, steps_seen, terms
from outpace.plan.hardware import Device, device
from outpace.plan.room import memory_plan, step_flops
from outpace.records.compute import Compute
from outpace.records.machine import Machine
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
    Sizes,
)
from outpace.records.session import Session

PUBLISHED_MFU = (0.21, 0.56)
"""MFU of published trainings of language models, between which one that is said may come out: GPT-3
(by Chowdhery et al. 2022, arXiv 2204.02311, table 3) and Megatron with 530 billion parameters (Korthikanti
et al. 2022, arXiv 2205.05198)"""

NOT_OF_A_SCRIPT = (
    "flops",
    "params",
    "tokens",
    "unique_tokens",
    "served_tokens",
    "hours",
    "fit",
)

OF_A_SCRIPT = ("steps", "epochs", "samples")
NOT_OF_MEMORY = ("deadline", "by", "cost", "objective", "usd_per_hour", "time_s")
OF_A_DEVICE = ("count", "mfu", "dtype", "usd_per_hour")
"""options that only say something of a device that is asked about"""


@dataclass(frozen=True)
class Question:
    """What is known and what is asked; seconds, FLOPs, tokens."""

    time: Budget | None = None
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
    epochs: int | None = None
    samples: int | None = None
    """of a script: one of these, where its length is not found"""
    usd_per_hour: float | None = None
    cost: float | None = None
    """USD that it may cost"""
    objective: Objective = "time"
    memory: bool = False
    """how much memory a step of a script takes"""
    batch: int | None = None
    said: frozenset[str] = frozenset()
    """names of what has a value in any case, where it was said"""

    def check_script(self) -> None:
        """Raise UsageError where a script is asked about, and something that is not of it."""
        if self.device is not None:
            device(self.device)
        for name in NOT_OF_A_SCRIPT:
            if getattr(self, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} cannot be combined with a script",
                    "leave it out, or the script",
                )
        unread = ("mfu", "dtype", "law")
        self._refuse(unread, "cannot be combined with a script", "leave it out, or the script")
        lengths = [name for name in OF_A_SCRIPT if getattr(self, name) is not None]
        if self.memory:
            why, hint = "has nothing to do with memory", "ask once with --memory, once without"
            self._refuse(("objective", "usd_per_hour", "time", "by"), why, hint)
            given = {"deadline": self.time, "cost": self.cost, **dict.fromkeys(lengths, True)}
            for name in (name for name, value in given.items() if value is not None):
                raise UsageError(f"--{name} {why}", hint)
        if len(lengths) > 1:
            raise UsageError(
                f"--{' and --'.join(lengths)} each say how long the training is", "keep one of them"
            )
        if self.usd_per_hour is None and (self.cost is not None or self.objective == "cost"):
            raise UsageError("what does an hour of this machine cost?", "say --usd-per-hour")
        if self.objective == "scale" and self.time is None and not self.memory:
            raise UsageError("in what time is most to be trained?", "say --deadline or --by")

    def check_law(self) -> None:
        """Raise UsageError where something is said that the answer would leave out."""
        for name in ("params", "tokens", "unique_tokens"):
            if getattr(self, name) == 0:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} 0 is nothing", "name a number such as 70B or 1.4T")
        if self.unique_tokens is not None and self.tokens is None:
            raise UsageError(
                "--unique-tokens are seen again in a training that is known",
                "say its --params and --tokens",
            )
        if self.flops is not None and (self.params is not None or self.tokens is not None):
            raise UsageError(
                "--flops, and --params and --tokens, each say how much is computed",
                "keep the one or the other",
            )
        timed = self.time or self.hours or self.cost
        if self.device is None and timed and (self.flops is not None or self.params is not None):
            raise UsageError("how fast is it computed?", "say --device, such as h100, and --count")
        for name in OF_A_SCRIPT:
            if getattr(self, name) is not None:
                raise UsageError(f"--{name} needs a script", "outpace plan train.py")
        self._refuse(("objective", "time"), "needs a script", "outpace plan train.py")
        if self.device is None:
            if self.hours is not None:
                raise UsageError("--hours needs --device", "say --device, such as h100")
            if self.cost is not None:
                raise UsageError(
                    "--cost needs --device, or a script", "say --device, or name the script"
                )
            self._refuse(OF_A_DEVICE, "needs --device", "say --device, such as h100")
        if self.device is None and self.flops is None and self.params is None and not self.tokens:
            known = "say --flops, or --params and --tokens, or --device"
            if self.served_tokens is not None:
                raise UsageError("--served-tokens needs a model", known)
            if self.time is not None and self.fit is None:
                self._refuse(("law",), "needs an amount of compute", known)
        if self.fit is not None:
            self._refuse(("law",), "and --fit each choose a law", "keep one of them")

    def _refuse(self, names: Iterable[str], why: str, hint: str) -> None:
        """Raise UsageError where one of them was said, which no answer would heed."""
        for name in names:
            if name in self.said:
                raise UsageError(f"--{name.replace('_', '-')} {why}", hint)

    @property
    def machine(self) -> Device | None:
        """The device that was asked about, at the price that was said."""
        if self.device is None:
            return None
        found = device(self.device)
        if self.usd_per_hour is None:
            return found
        own = {"usd_per_hour": self.usd_per_hour, "price_source": "your price", "price_date": None}
        return msgspec.structs.replace(found, **own)


@dataclass(frozen=True)
class Chosen:
    """The law that answers, and how sure its constants are where they were fitted here."""

    name: LawName
    law: scaling.Law
    fit: Fit | None = None
    resampled: tuple[scaling.Parametric, ...] = ()

    def optimal(self, flops: float) -> Optimal:
        """The best split."""
        best = scaling.optimal(self.law, flops)
        if not self.resampled:
            return best
        return msgspec.structs.replace(best, loss=self.loss(best.parameters, best.tokens))

    def loss(self, parameters: float, tokens: float) -> Estimate | None:
        """Nats a token; with limits from the resampled laws."""
        told = scaling.expected_loss(self.law, parameters, tokens)
        if told is None or not self.resampled:
            return told
        return between([law.loss(parameters, tokens) for law in self.resampled], told.estimate)

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
    if not depends(runs, law):
        raise UsageError(
            f"{asked.fit}: the losses depend on neither size nor data by more than chance",
            "no law can be told of them: add runs that are further apart, or less noisy",
        )
    if (name := left_out(runs, law)) is not None:
        raise UsageError(
            f"{asked.fit}: the losses do not depend on {name}",
            "no best split follows: add runs that are further apart in it",
        )
    several = resampled(runs, law)
    return Chosen("fitted", law, fitted(runs, several, law), tuple(several))


def answer(asked: Question, measured: Session | None = None) -> tuple[Plan, Chosen | None]:
    """The plan, and the law that answers; of a script that was ``measured``, if one was.

    Raises UsageError where too little is known.
    """
    if measured is not None:
        return _of_script(asked, measured), None
    asked.check_law()
    law = chosen(asked)
    time = asked.time
    machine = asked.machine
    given = _given(asked, law)
    flops = _flops(asked, machine)
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
    if machine is not None and flops is not None and flops.peak_per_s is None:
        found["forecast"] = forecast = _forecast(asked, machine, flops.total)
        if given is not None and given.wasted and forecast.usd is not None:
            lost = given.wasted * forecast.usd.estimate
            given = msgspec.structs.replace(given, wasted_usd=lost)
    if given is not None:
        found["given"] = given
    if flops is not None:
        best = law.optimal(flops.total)
        found.update(law=law.name, optimal=best)
        if asked.served_tokens is not None:
            loss = given.loss if given is not None else best.loss
            wanted = loss.estimate if loss is not None else math.nan
            found["served"] = scaling.with_inference(law.law, wanted, asked.served_tokens)
    return Plan(**found), law  # type: ignore[arg-type]


def _of_script(asked: Question, measured: Session) -> Plan:
    available = asked.time.available_s if asked.time is not None else None
    evidence = measured.evidence
    steps = steps_of(evidence, asked.steps, asked.epochs, asked.samples)
    seconds = finish(evidence, steps)
    steps = steps or steps_seen(evidence)
    fits = available is None or seconds.estimate <= available
    usd = _dollars(seconds, asked.usd_per_hour)
    if asked.cost is not None and usd is not None:
        fits = fits and usd.estimate <= asked.cost
    compute, step_s = evidence.compute, evidence.steps.median_s
    step = step_flops(
        compute.flops, compute.flops_forward, step_s, peak_of(evidence.machine, compute)
    )
    spent = terms(evidence, steps)
    rate = steps / spent["steps"] if spent.get("steps") else None
    there = device(asked.device) if asked.device is not None else None
    # Those of a tuning tell of its trials too.
    said = (*notes(evidence, steps), *(() if measured.trials else measured.notes))
    found = options(
        evidence,
        measured.findings,
        seconds,
        available,
        asked.usd_per_hour,
        asked.objective,
        steps,
        cost=asked.cost,
        device=there,
        count=asked.count,
    )
    if there is not None:
        if isinstance(untold := step_on(there, evidence), str):
            said += (f"nothing is told of {there.name}: {untold}",)
        elif asked.count > 1 and not evidence.compute.learnt_bytes:
            said += (
                f"nothing is told of {asked.count} {there.name}: what they would exchange is not known",
            )
        elif not {on(there, 1), on(there, asked.count)} & {one.change for one in found}:
            said += (f"{there.name} would end it no sooner",)
        elif in_tf32(there, compute.products):
            asks = 'torch.set_float32_matmul_precision("high")'
            said += (
                f"on {there.name} float32 products are reckoned as TF32, which is what {asks} asks for",
            )
    return Plan(
        budget=asked.time if asked.time is not None else UNSET,
        forecast=Forecast(seconds, fits, said, usd, None, asked.cost, steps, rate, spent),
        options=found,
        flops=step if compute.flops else UNSET,
    )


def of_memory(asked: Question, sizes: Sizes, machine: Machine) -> Plan:
    """What a step's memory and arithmetic are, here or on the device that was asked about."""
    wanted = device(asked.device) if asked.device is not None else None
    peak = machine.training_on(sizes.device).products.get(sizes.dtype)
    step = step_flops(sizes.flops, sizes.flops_forward, sizes.step_s, peak)
    return Plan(
        flops=step,
        memory=memory_plan(sizes, asked.batch, wanted, asked.count),
    )


def peak_of(machine: Machine, compute: Compute) -> float | None:
    """FLOP/s of this machine's matrix products in a model's format, as measured; None: not known."""
    return machine.products.get(compute.products) if compute.products is not None else None


def hours_of(asked: Question) -> float | None:
    """Hours of training: the fewest of what was asked, the deadline leaves and the money pays."""
    hours = [asked.hours] if asked.hours is not None else []
    if asked.time is not None:
        hours.append(asked.time.available_s / 3600)
    if asked.cost is not None:
        machine = asked.machine
        price = machine.usd_per_hour if machine is not None else None
        if not price:
            raise UsageError(
                "no price is known by which a cost could be turned into hours",
                "say --device, and --usd-per-hour where no price of it is known",
            )
        hours.append(asked.cost / (price * asked.count))
    return min(hours, default=None)


def _given(asked: Question, law: Chosen) -> Given | None:
    if asked.params is None and asked.tokens is None:
        return None
    if asked.params is None or asked.tokens is None:
        lacking = "--params" if asked.params is None else "--tokens"
        raise UsageError(f"{lacking} is missing", "a training has both --params and --tokens")
    tokens = asked.tokens
    if asked.unique_tokens is not None:
        tokens = scaling.tokens_worth(asked.unique_tokens, tokens / asked.unique_tokens)
    found = scaling.judged(law.law, asked.params, tokens, asked.tokens)
    return msgspec.structs.replace(found, loss=law.loss(asked.params, tokens))


def _flops(asked: Question, machine: Device | None) -> Flops | None:
    if asked.flops is not None:
        return Flops(asked.flops)
    if asked.params is not None and asked.tokens is not None:
        return Flops(scaling.PER_PARAMETER_AND_TOKEN * asked.params * asked.tokens)
    if machine is None:
        return None
    hours = hours_of(asked)
    if hours is None:
        raise UsageError(
            f"for how long is {machine.name} at work?", "give --hours, --deadline or --cost"
        )
    peak = machine.flops_per_s(asked.dtype)
    usd = machine.usd_per_hour * asked.count * hours if machine.usd_per_hour else None
    total = peak * asked.mfu * asked.count * hours * 3600
    return Flops(total, peak, asked.mfu, usd, machine.price)


def _forecast(asked: Question, machine: Device, flops: float) -> Forecast:
    hours = hours_of(asked)
    at_peak = flops / (machine.flops_per_s(asked.dtype) * asked.count)
    lowest, highest = PUBLISHED_MFU
    finish_s = Estimate(
        at_peak / asked.mfu, at_peak / max(highest, asked.mfu), at_peak / min(lowest, asked.mfu)
    )
    fits = hours is None or finish_s.estimate <= 3600 * hours
    price = machine.usd_per_hour * asked.count if machine.usd_per_hour else None
    usd = _dollars(finish_s, price)
    return Forecast(finish_s, fits, (), usd, machine.price, asked.cost)


def _dollars(seconds: Estimate, usd_per_hour: float | None) -> Estimate | None:
    if usd_per_hour is None:
        return None
    hourly = usd_per_hour / 3600
    return Estimate(hourly * seconds.estimate, hourly * seconds.low, hourly * seconds.high)

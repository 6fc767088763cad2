"""The answers of `outpace plan` in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from outpace.plan.budget import arithmetic, duration
from outpace.plan.hardware import CONTEXT_BYTES
from outpace.plan.question import PUBLISHED_MFU, Chosen, Question, hours_of
from outpace.records.counted import counted
from outpace.records.plan import (
    Estimate,
    Flops,
    Forecast,
    Given,
    MemoryPlan,
    Optimal,
    Option,
    Plan,
    StepFlops,
)
from outpace.report import words

KEEPS = {
    "exact": "the same bits",
    "numerics": "the same mathematics, with other rounding",
    "learning": "less: it is another training",
}
TERMS = {
    "earlier": "all that came before it",
    "startup": "start-up",
    "epoch_start": "epochs' starts",
    "epoch_end": "epochs' ends",
    "compiling": "compiling again",
    "validation": "validation",
    "checkpoint": "checkpoints",
    "logging": "figures and files made at validations",
    "ending": "what follows the last step",
}
"""of a forecast, besides its steps"""
MOST_LAYERS = 8
MOST_OPTIONS = 14
MADE_TO_FIT = 1 + 1e-9
"""times its limit that what was made to fit may come to by rounding"""


def script_lines(asked: Question, plan: Plan, name: str) -> Iterator[str]:
    """When a script ends, and what would make it end sooner."""
    assert plan.forecast
    time, seconds, found = asked.time, plan.forecast.finish_s, plan.options or ()
    takes = f"{about(seconds.low)} to {about(seconds.high)}"
    verdict = ""
    if time is not None:
        yield arithmetic(time)
        late = seconds.estimate > time.available_s
        verdict = ", which does not fit" if late else ", which fits"
    cost = ""
    if asked.usd_per_hour:
        usd = asked.usd_per_hour * seconds.estimate / 3600
        cost = f"; {money(usd, asked.cost)}"
        if asked.cost is not None:
            cost += f", {'more than' if usd > asked.cost else 'within'} {money(asked.cost)}"
    estimate = about(seconds.estimate, time.available_s if time is not None else None)
    yield f"{name} takes {estimate} ({takes}){verdict}{cost}"
    yield from plan.forecast.notes
    if plan.forecast.terms:
        yield _spent(plan.forecast)
    if isinstance(plan.flops, StepFlops):
        yield arithmetic_of(plan.flops)
    shown = found[:MOST_OPTIONS]
    width = max((len(option.change) for option in shown), default=0)
    for option in shown:
        yield f"  {mark(asked, option)}{option.change:<{width}}  {_option(asked, option)}"
    if len(found) > len(shown):
        yield f"  and {len(found) - len(shown)} more with --json"
    if found:
        yield "each change alone; `outpace tune` measures remedies together and proves the quality"


def _spent(found: Forecast) -> str:
    """What the estimate is the sum of: "900 steps at 12.3 a second: 1m13s; start-up 4s"."""
    text = counted(found.steps or 0, "step")
    if found.steps_per_s is not None:
        text += f" at {_pace(found.steps_per_s)}: {duration(found.terms['steps'])}"
    others = ((name, found.terms.get(name, 0.0)) for name in TERMS)
    return text + "".join(f"; {TERMS[name]} {duration(s)}" for name, s in others if s >= 0.5)


def _pace(steps_per_s: float) -> str:
    per, unit = (steps_per_s, "second") if steps_per_s >= 1 else (60 * steps_per_s, "minute")
    return f"{per:,.0f} a {unit}" if per >= 100 else f"{per:.3g} a {unit}"


def mark(asked: Question, option: Option) -> str:
    """Whether it is in time, and within the money."""
    if asked.time is None and asked.cost is None:
        return ""
    hours = option.hours.estimate
    late = asked.time is not None and 3600 * hours > MADE_TO_FIT * asked.time.available_s
    most = MADE_TO_FIT * asked.cost if asked.cost is not None else None
    unknown = most is not None and option.usd is None
    dear = most is not None and option.usd is not None and option.usd.estimate > most
    return "too late " if late else "no price " if unknown else "too dear " if dear else "fits     "


def about(seconds: float, limit: float | None = None) -> str:
    """A time that is forecast, no finer than anybody could know: to the minute from an hour on, from two days
    on to the hour; finer where it would be told on the other side of its ``limit`` else.
    """
    late = limit is not None and seconds > limit
    for unit, from_s in ((3600, 48 * 3600), (60, 3600), (1, 0)):
        told = unit * round(seconds / unit)
        if seconds >= from_s and (limit is None or (told > limit) == late):
            return duration(told)
    return duration(math.ceil(seconds) if late else math.floor(seconds))


def _option(asked: Question, option: Option) -> str:
    hours = option.hours
    limit = MADE_TO_FIT * asked.time.available_s if asked.time is not None else None
    text = (
        f"{about(3600 * hours.estimate, limit)} ({about(3600 * hours.low)} to "
        f"{about(3600 * hours.high)}), {option.how}"
    )
    if option.usd is not None:
        text += f"; {money(option.usd.estimate)}"
        text += f" ({option.price})" if option.price is not None else ""
    if option.scale is not None:
        text += f"; {scale(option.scale)} the steps in the time"
    return f"{text}; keeps {KEEPS[option.keeps]}"


def scale(times: float) -> str:
    """How much of a training there is time for: ``1.25x``, ``0.0042x``."""
    return f"{times:.2f}x" if times >= 0.1 else f"{times:.2g}x"


def memory_lines(plan: Plan, name: str) -> Iterator[str]:
    """What a step's memory is, whether it fits, and what would make room."""
    assert plan.memory
    assert isinstance(plan.flops, StepFlops)
    memory = plan.memory
    samples = counted(memory.batch, "sample")
    if memory.micro_steps > 1:
        samples = f"{memory.micro_steps} batches of {samples}"
    yield (
        f"a step of {name} with {samples} takes "
        f"{words.size(memory.peak_bytes)}, {memory.how}{_against(memory)}"
    )
    kinds = memory.by_kind
    for kind in kinds.__struct_fields__:
        if getattr(kinds, kind):
            yield f"  {kind:<14} {words.size(getattr(kinds, kind))}"
    layers = sorted(memory.layers, key=lambda layer: -layer.bytes)[:MOST_LAYERS]
    if layers and layers[0].bytes > 0:
        kept = ", ".join(f"{layer.name} {words.size(layer.bytes)}" for layer in layers)
        how = "as measured"
        if memory.batch != memory.own_batch:
            how += f" with {counted(memory.own_batch, 'sample')}, in proportion"
        yield f"kept for the backward pass, {how}: {kept}"
    if memory.largest_batch is not None:
        how = "tried" if memory.largest_tried else "predicted"
        yield f"largest batch that fits: {memory.largest_batch:,}, {how}"
    width = max((len(room.change) for room in memory.changes), default=0)
    for room in memory.changes:
        fits = "" if room.fits is None else "fits      " if room.fits else "too large "
        time = (
            f"; a step takes {room.time:.2f}x as long, predicted" if room.time is not None else ""
        )
        yield f"  {fits}{room.change:<{width}}  {words.size(room.peak_bytes)}, {room.how}{time}"
    own = "" if memory.batch == memory.own_batch else counted(memory.own_batch, "sample")
    yield arithmetic_of(plan.flops, f" with {own}" if own else "")


def _against(memory: MemoryPlan) -> str:
    if memory.limit_bytes is None:
        return ""
    fits = "fits" if memory.fits else "does not fit"
    if memory.device is None:
        return f"; it {fits} in the {words.size(memory.limit_bytes)} that there are for it"
    return (
        f"; it {fits} in the {words.size(memory.limit_bytes + CONTEXT_BYTES)} of {memory.device}, "
        f"less {words.size(CONTEXT_BYTES)} for its context"
    )


def arithmetic_of(step: StepFlops, of: str = "") -> str:
    """FLOPs of a step, and the shares of the peak."""
    text = (
        f"a step{of} computes {words.rate(step.model, 'FLOP')}, "
        f"{words.rate(step.forward, 'FLOP')} of it forward"
    )
    if step.hardware > 1.01 * step.model:
        text += f", and {words.rate(step.hardware - step.model, 'FLOP')} again"
    if step.mfu is not None and step.hfu is not None and step.peak_per_s is not None:
        text += (
            f"; MFU {100 * step.mfu:.1f} %, HFU {100 * step.hfu:.1f} % of this machine's "
            f"{words.rate(step.peak_per_s, 'FLOP/s')}"
        )
    return text


def lines(asked: Question, plan: Plan, law: Chosen) -> Iterator[str]:
    """What was asked of a model and its data, in words."""
    machine = asked.machine
    flops = plan.flops if isinstance(plan.flops, Flops) else None
    if law.fit is not None:
        yield f"fitted to {law.fit.runs} runs; limits hold 80 % of {len(law.resampled)} resamples"
        for name in ("e", "a", "b", "alpha", "beta"):
            found: Estimate = getattr(law.fit, name)
            yield f"  {name:<6} {found.estimate:<10.4g} {found.low:.4g} to {found.high:.4g}"
    if plan.budget:
        yield arithmetic(plan.budget)
    if flops is not None and flops.peak_per_s is not None and machine is not None:
        hours = hours_of(asked) or 0.0
        yield (
            f"{asked.count} {machine.name} for {duration(3600 * hours)} at {100 * asked.mfu:g} % of "
            f"{flops.peak_per_s / 1e12:g} TFLOP/s ({asked.dtype}, dense): "
            f"{flops.total:.3g} FLOPs{_price(flops.usd, flops.price)}"
        )
    if plan.forecast and machine is not None:
        takes = plan.forecast.finish_s
        seconds = takes.estimate
        usd = machine.usd_per_hour * asked.count * seconds / 3600 if machine.usd_per_hour else None
        limits = [plan.budget.available_s] if plan.budget else []
        limits += [3600 * asked.hours] if asked.hours is not None else []
        limit = min(limits, default=None)
        late = limit is not None and seconds > limit
        fits = (
            "" if plan.forecast.fits else ", which does not fit" if late else ", which is too dear"
        )
        what = f"{asked.flops:.3g} FLOPs" if asked.flops is not None else ""
        what = what or f"{short(asked.params)} parameters on {short(asked.tokens)} tokens"
        yield (
            f"{what} take {about(seconds, limit)} ({about(takes.low)} to {about(takes.high)}) on "
            f"{asked.count} {machine.name}{fits}; not measured, at {100 * asked.mfu:g} % of the peak, of "
            f"which published trainings reached {100 * PUBLISHED_MFU[0]:g} to {100 * PUBLISHED_MFU[1]:g} %"
            f"{_price(usd, machine.price)}"
        )
    if plan.given and plan.optimal:
        yield from _judgement(asked, law, plan.given, plan.optimal)
    elif plan.optimal and flops is not None:
        yield (
            f"{law.name}: best with {_split(plan.optimal)}{_loss(plan.optimal.loss)}, "
            f"for {flops.total:.3g} FLOPs"
        )
        if law.resampled:
            sizes = law.sizes(flops.total)
            yield f"parameters from {short(sizes.low)} to {short(sizes.high)}"
    if plan.served:
        yield (
            f"to serve {short(asked.served_tokens)} tokens at the same loss: {_split(plan.served)} cost "
            "least, training and serving together"
        )
    if plan.optimal and law.fit is None:
        yield f"source: {law.law.source}"


def _judgement(asked: Question, law: Chosen, given: Given, best: Optimal) -> Iterator[str]:
    worth = ""
    if asked.unique_tokens is not None and asked.tokens is not None:
        epochs = asked.tokens / asked.unique_tokens
        unit = "epoch" if epochs == 1 else "epochs"
        worth = (
            f" ({epochs:.3g} {unit} of {short(asked.unique_tokens)} tokens, worth "
            f"{short(given.fresh_tokens)} fresh ones)"
        )
    percent = min(99.0, 100 * given.wasted) if given.wasted else 0.0  # some of it is of use
    lost = f": {percent:.0f} % of the compute is wasted" if percent else ""
    lost += f" ({money(given.wasted_usd)})" if given.wasted_usd is not None else ""
    means = {
        "balanced": "as good as balanced",
        "compute-inefficient": f"compute-inefficient, too large for its data{lost}",
        "data-inefficient": f"data-inefficient, too small for its data{lost}",
    }
    yield (
        f"{law.name}: {short(asked.params)} parameters on {short(asked.tokens)} tokens"
        f"{worth}{_loss(given.loss)}; {means[given.verdict]}"
    )
    fresh = ", all of them fresh" if worth else ""
    yield f"best for as much compute: {_split(best)}{fresh}{_loss(best.loss)}"


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


def money(usd: float, limit: float | None = None) -> str:
    """USD, with cents where they matter: also to tell it from its limit."""
    if limit is not None and usd != limit and usd >= 100 and money(usd) == money(limit):
        return f"${usd:,.2f}"
    return f"${usd:,.0f}" if usd >= 100 else f"${usd:.2f}" if usd >= 0.1 else f"${usd:.4f}"


def _price(usd: float | None, price: str | None) -> str:
    return f"; {money(usd)} ({price})" if usd is not None else ""


def short(count: float | None) -> str:
    """A count as it is spoken of: 72.2B, 1.33T."""
    assert count is not None
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * scale:  # what rounds to 1000 of the next smaller one
            return f"{count / scale:.3g}{letter}"
    return f"{count:.3g}"

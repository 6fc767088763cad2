"""Rows of the table of bottlenecks: how a step is computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from outpace.diagnose.costs import (
    DOUBLE,
    LEAST_USELESS,
    MOST_OVER_TINY,
    ROOMY,
    SURELY_MOVED,
    beyond_least,
    by_hand_seconds,
    calls_by_rows,
    ceiling_seconds,
    compared_s,
    compute_cost,
    cost_by_arm,
    dispatch_seconds,
    double_seconds,
    moving_seconds,
    of_run,
    of_step,
    one_call,
    others_at_bandwidth,
    products_seconds,
    sliced_seconds,
    spared_by,
    untouched_seconds,
    updating_seconds,
    without,
)
from outpace.diagnose.told import Told, in_ms
from outpace.records.arm import FED, ONE_THREAD, Arm
from outpace.records.compute import MOSTLY
from outpace.records.counted import counted
from outpace.records.evidence import Evidence

AT_CEILING = 0.95
FAR_BELOW = 0.05
"""share of the ceiling below which it is not matrix products that take the time, and nothing is promised"""
MUCH_UPDATING, MANY_CALLS = 0.3, 0.2
"""shares of what the operations take from which on it is said"""
MUCH_CALLING = 0.3
"""share of computing that calls take, from which on it is told"""
LEAST_BY_THREADS = 1.03
HARDLY_LONGER = 1.5
"""times as long as a step with twice the batch may take for that to be said"""
MUCH_THERE = 0.3
"""share of the operators' time before a backward pass that a line takes, from which on it is said"""


def dispatch(evidence: Evidence) -> Iterator[Told]:
    """Framework overhead: many small operators, or more to be done at each."""
    seeking = cost_by_arm(evidence, "no_anomaly_detection")
    if seeking is not None:
        yield Told(
            seeking,
            evidence.compute.anomaly_where,
            f"torch's anomaly detection is on, and takes {in_ms(seeking.seconds, seeking.whole_s)} of a "
            "step: each operator keeps the lines that called it, and each gradient is looked through for NaN",
        )
    by_hand = by_hand_seconds(evidence)
    update = evidence.compute.by_hand
    if update is not None:
        beyond = max(0.0, 1 - evidence.compute.tensors / update.operators)
        spared = beyond * by_hand
        yield Told(
            of_step(evidence, spared, 0.8 * spared, 1.1 * spared),
            update.where,
            f"the script changes its parameters tensor by tensor, by {update.operators} "
            "operators a step: an optimizer of torch's (fused=True) or torch._foreach_* takes a few",
        )
    seconds, low, high = (max(0.0, s - by_hand) for s in dispatch_seconds(evidence))
    if seconds < MUCH_CALLING * compute_cost(evidence):
        return
    beyond = beyond_least(evidence)
    by_rows = calls_by_rows(evidence.compute)
    how = "measured" if evidence.compute.fixed is not None and not by_rows else "predicted"
    cost = of_step(evidence, beyond * seconds, beyond * low, beyond * high, how)  # type: ignore[arg-type]
    what = "go to calls" if by_rows else "do not depend on the batch"
    for_each = " for each row of a batch anew," if by_rows else ","
    calls = evidence.compute.calls
    yield Told(
        cost,
        calls.where if calls is not None and calls.in_loop else evidence.compute.where,
        f"{in_ms(seconds, cost.whole_s)} of a step {what}: "
        f"{evidence.compute.operations} operators a forward pass{_called(evidence)}{for_each} each too small "
        f"for what it costs to call; with one for each of the model's {evidence.compute.tensors} tensors, "
        f"and an optimizer that updates all at once, {100 * (1 - beyond):.0f} % of a step's calls would be "
        "left" + (_fewer_batches(evidence) or _twice_the_batch(evidence)),
    )


def _fewer_batches(evidence: Evidence) -> str:
    """That a step of several batches need not have them, where memory has room for larger ones."""
    steps, drawn = evidence.steps, evidence.input.kind in ("loader", "iterable")
    # Without a loader they may be one batch, of which several losses are taken.
    if not drawn or steps.micro_steps < 2 or evidence.memory.full_at(2.0) >= ROOMY:
        return ""
    if evidence.compute.batch_norm_training:
        return ""  # whose statistics are of a batch
    return (
        f"; a step has {steps.micro_steps} batches of {steps.batch_size}, and as many samples in fewer, "
        "larger ones give the same gradients with fewer calls"
    )


def _twice_the_batch(evidence: Evidence) -> str:
    """What more samples in a step would cost, where that is little."""
    arm = evidence.arm("batch_double")
    if arm is None or arm.gain.speedup * HARDLY_LONGER < 1 or arm.gain.speedup > 1:
        return ""
    return f"; with twice the batch it takes {1 / arm.gain.speedup:.2f} times as long"


def recompiling(evidence: Evidence) -> Iterator[Told]:
    """A model that is compiled for one shape after the other."""
    for row in evidence.ledger:
        if row.name == "compiling":
            cost = of_run(evidence, row.seconds, error=0.1)
            yield Told(
                cost,
                evidence.compute.where,
                f"the model is compiled again for other shapes, which takes {row.seconds:.1f} s, "
                f"{100 * cost.run_share:.0f} % of the run: batches padded to few lengths, or "
                "torch.compile(dynamic=True), need one or two compilations",
            )


def sync(evidence: Evidence) -> Iterator[Told]:
    """Waiting for the device."""
    arm = evidence.arm("sync_free")
    whole = evidence.steps.mean_s
    if arm is None or not whole or not evidence.syncs:
        return
    cost = without(evidence, whole, arm.gain)
    worst = evidence.syncs[0]
    yield Told(
        cost,
        worst.where,
        f"{_name(worst.name)} makes the host wait for the device {_often(worst.count)}",
    )


def _name(call: str) -> str:
    return f"torch.{call}()" if "." in call else f".{call}()"


def _often(count: float) -> str:
    return (
        f"{count:.1f} times a step" if count >= 0.7 else f"every {1 / max(count, 1e-6):,.0f} steps"
    )


def threads(evidence: Evidence) -> Iterator[Told]:
    """Too few or too many threads; what makes batches needs them too, or the cores that they take.

    Or threads that wait for one whose core another program holds.
    """
    yield from _held_up(evidence)
    arms = [a for a in evidence.arms if a.name.startswith("threads_")]
    fed = evidence.input.workers > 0 or any(a.name.endswith(FED) for a in arms)
    counts = {
        int(a.name.removeprefix("threads_").removesuffix(FED)): a
        for a in arms
        if not a.failed and a.name.endswith(FED) == fed
    }
    told = {n: arm for n, arm in counts.items() if not evidence.slowed_by_others(n)}
    count = max(told, key=lambda n: told[n].gain.speedup, default=None)
    if count is None or told[count].gain.low < LEAST_BY_THREADS:
        return
    how = f"with {counted(count, 'thread')} instead of {evidence.compute.threads}"
    yield _by_threads(evidence, told[count], how)


def _held_up(evidence: Evidence) -> Iterator[Told]:
    alone = evidence.arm(ONE_THREAD)
    if alone is None or alone.gain.low < LEAST_BY_THREADS:
        return
    how = (
        f"{evidence.compute.threads} threads wait for whichever has no core, as other programs keep "
        f"{evidence.run.others_cores:.1f} of {evidence.machine.cores} busy: as long as they do, "
        "with one thread"
    )
    yield _by_threads(evidence, alone, how)


def _by_threads(evidence: Evidence, arm: Arm, how: str) -> Told:
    whole = compared_s(evidence, arm)
    what = "a step" if arm.base == "as_is" else "the compute of a step"
    then = whole / arm.gain.speedup  # by the rounds: the arm's own median is of other moments
    return Told(
        spared_by(evidence, arm),
        evidence.compute.threads_where,
        f"{how} {what} takes {1e3 * then:.1f} instead of {1e3 * whole:.1f} ms",
    )


def arithmetic(evidence: Evidence) -> Iterator[Told]:
    """The model's own operations: what they take beyond their time at the machine's ceiling."""
    total = compute_cost(evidence)
    fixed, least_fixed, most_fixed = dispatch_seconds(evidence)
    if evidence.compute.fixed is None and fixed < MUCH_CALLING * total:
        fixed = least_fixed = most_fixed = 0.0
    at_best = ceiling_seconds(evidence)
    moving = moving_seconds(evidence) + untouched_seconds(evidence)
    least_doubled, doubled, most_doubled = double_seconds(evidence)
    sliced = sliced_seconds(evidence)
    taken = max(0.0, total - fixed - moving - doubled - sliced)
    unknown, most = None, 0.0
    if not evidence.compute.operations:
        unknown = "how far they are from this machine's ceiling"
    elif evidence.may_be_held_up and evidence.arm(ONE_THREAD) is None and not evidence.together:
        unknown = "how much of that they wait for cores that other programs use"
        most = max(0.0, taken - at_best)
    if unknown is not None:
        yield Told(
            of_step(evidence, 0.0, 0.0, most, "predicted"),
            evidence.compute.where,
            f"the model's operations take {in_ms(taken, evidence.steps.mean_s)} of a "
            f"step; {unknown} was not measured",
            sure=False,
        )
        return
    useless, most_useless, why = _useless(evidence, taken, total)
    if useless >= LEAST_USELESS * taken:
        most = min(total, 1.1 * most_useless)
        yield Told(
            of_step(evidence, useless, 0.8 * useless, most, "predicted"),
            evidence.compute.where,
            f"the model's operations take {in_ms(taken, evidence.steps.mean_s)} of a step, {why}",
        )
        return
    if evidence.compute.dtype == "float64":
        least, usual, most = (part * taken for part in DOUBLE)
        yield Told(
            of_step(evidence, usual, least, most, "predicted"),
            evidence.compute.where,
            f"the model's operations take {in_ms(taken, evidence.steps.mean_s)} of a "
            "step, in float64: float32, for the model and for its input, moves half the bytes and computes "
            "about twice as fast",
        )
        return
    slowed = evidence.slowed_by_half
    if slowed is not None:
        tried = evidence.arm("float32")
        usual, least, most = (min(taken, seconds) for seconds in slowed)
        yield Told(
            of_step(evidence, usual, least, most, "predicted")
            if tried is None
            else spared_by(evidence, tried),
            evidence.compute.where,
            f"the model's operations take {in_ms(taken, evidence.steps.mean_s)} of a "
            f"step, in {evidence.compute.products}, which this machine has no units for: it makes matrix "
            f"products {_times_slower(evidence)} as slowly as in float32",
        )
        return
    rest = low = high = 0.0
    products = min(taken, products_seconds(evidence))
    if at_best >= FAR_BELOW * taken:  # else how soon these operations could be done is not known
        least = min(products, total - most_fixed - moving - most_doubled - sliced)
        most = total - least_fixed - SURELY_MOVED * moving - least_doubled
        rest = max(0.0, products - at_best)  # nor is it of the others
        low = 0.95 * least - 1.1 * at_best
        high = 1.05 * most - 0.9 * at_best
        if products < MOSTLY * taken:
            high = max(rest, high - others_at_bandwidth(evidence))
    cost = of_step(evidence, rest, max(0.0, low), max(0.0, high), "predicted")
    updating = MOSTLY * taken < updating_seconds(evidence) <= taken
    yield Told(
        cost,
        evidence.compute.optimizer_where if updating else evidence.compute.dearest_where,
        f"the model's operations take {in_ms(taken, cost.whole_s)} of a step"
        + _much_updating(evidence, taken)
        + _beside_ceiling(evidence, at_best, taken, products)
        + _many_calls(evidence, taken)
        + _dearest(evidence),
        sure=False,
    )


def _times_slower(evidence: Evidence) -> str:
    """Times as long as in float32 that a matrix product takes."""
    assert evidence.compute.products is not None
    rates = evidence.machine.products
    times = rates["float32"] / rates[evidence.compute.products]
    return f"{times:.0f} times" if times >= 10 else f"{times:.1f} times"


def _beside_ceiling(evidence: Evidence, at_best: float, taken: float, products: float) -> str:
    """How near they are to what the machine can do."""
    if not taken:
        return ""
    if not at_best:
        return "; how far they are from this machine's ceiling was not measured"
    if at_best >= AT_CEILING * taken:
        return ", the least that this machine needs for them"
    share = at_best / taken
    if share < FAR_BELOW:
        need = f"{1e3 * at_best:.2g}" if at_best < 0.1 else f"{1e3 * at_best:.0f}"
        return (
            f"; its matrix products and convolutions need {need} ms of that at this machine's ceiling: "
            "other operations take the rest, or these run far below it"
        )
    if products < MOSTLY * taken:
        taken_by: defaultdict[str, float] = defaultdict(float)
        for each in evidence.compute.spent:
            if not each.flops:
                taken_by[each.name.strip("_")] += each.seconds
        longest = sorted(taken_by, key=lambda name: -taken_by[name])[:3]
        return (
            f"; its matrix products and convolutions take {1e3 * products:.1f} of them, "
            f"{1e3 * at_best:.1f} at this machine's ceiling; of the other operations "
            f"{', '.join(longest)} take longest"
        )
    return f": {100 * share:.0f} % of this machine's ceiling, at which the rest would be gained"


def _many_calls(evidence: Evidence, taken: float) -> str:
    """Where most operators are called, if their calls alone may take a good part of the time."""
    operations = evidence.compute.operations
    where = _called(evidence)
    if not where or operations * MOST_OVER_TINY * one_call(evidence) < MANY_CALLS * taken:
        return ""
    return f"; {operations} operators are called for a forward pass{where}"


def _dearest(evidence: Evidence) -> str:
    """The script's line that computes for longest, where that is much and not the model's call itself."""
    dearest = evidence.compute.dearest
    if dearest is None or dearest.share < MUCH_THERE or dearest.where == evidence.compute.where:
        return ""
    whose = "no model's: " if dearest.beside else ""
    at = f"{dearest.operator.lstrip('_')} at {dearest.where}"
    if dearest.function is not None:
        at = f"in {dearest.function.replace('<locals>.', '')}, the most {at}"
    return f"; {100 * dearest.share:.0f} % of what comes before the backward pass is {whose}{at}"


def _called(evidence: Evidence) -> str:
    """What of the script calls most operators, where it is not the model's call itself."""
    compute = evidence.compute
    calls = compute.calls
    if calls is None or calls.where == compute.where:
        return ""
    # Of more than a forward pass has, some are of a call under no_grad.
    if not compute.operations <= 2 * calls.operators <= 2 * compute.operations:
        return ""
    name = calls.function.replace("<locals>.", "")
    at = f"at {calls.where}" if name.startswith("<") else f"in {name} ({calls.where})"
    at = f"in a loop {at}" if calls.in_loop else at
    return f", {calls.operators} of them {at}"


def _much_updating(evidence: Evidence, taken: float) -> str:
    """What the optimizer takes of it, where that is much."""
    updating = updating_seconds(evidence)
    if not 0 < MUCH_UPDATING * taken <= updating <= taken:
        return ""
    name = evidence.compute.optimizer
    return f", {1e3 * updating:.1f} of them in {f'the step of {name}' if name else 'updates'}"


def _useless(evidence: Evidence, taken: float, total: float) -> tuple[float, float, str]:
    """Seconds of a step that are easily spared as they compute on nothing, all of that, and what it is.

    ``taken``: those of arithmetic; ``total``: of all operators, which what is all but empty has a share of.
    Of padding that is what lies beyond the longest sequence of a batch: the rest needs batches of one length.
    """
    compute = evidence.compute
    empty, sequences = compute.empty * total, 1.0
    if compute.flops and compute.sequence_flops is not None:
        sequences = min(1.0, compute.sequence_flops / compute.flops)
    trimmed, padding = sequences * compute.trimmed, sequences * compute.padding
    spared = trimmed if trimmed >= LEAST_USELESS else padding
    if spared * taken < empty:
        what = "an index would do in place of one-hot rows (nn.Embedding, gather)"
        if compute.empty_several:
            what = "a sparse tensor would leave them out"
        return empty, empty, f"and {100 * compute.empty:.0f} % of it multiplies by zeros: {what}"
    what = f"and {100 * compute.padding:.0f} % of its positions are padding"
    if trimmed < LEAST_USELESS:
        what += ": batches of sequences of one length would do without"
        return padding * taken, padding * taken, what
    what += (
        f", {100 * compute.trimmed:.0f} % beyond the longest sequence of the batch: padded to that "
        "length they are gone"
    )
    if padding - trimmed >= LEAST_USELESS:
        what += "; batches of sequences of one length would do without the others"
    return trimmed * taken, padding * taken, what

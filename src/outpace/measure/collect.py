"""From what the seams, the sampler and the arms saw to evidence."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec
import torch
from torch import nn

from outpace.measure.arms import Contest
from outpace.measure.collect_input import collect_input
from outpace.measure.counters import held_bytes
from outpace.measure.device_time import on_device
from outpace.measure.first_epoch import first_epoch, parted, sooner
from outpace.measure.found import Found
from outpace.measure.ledger import (
    Seen,
    build,
    by_hand_share,
    clean_steps,
    grown,
    mean_of,
    mean_phases,
    own_share,
    saving,
    told_s,
)
from outpace.measure.lines import input_lines
from outpace.measure.machine import free_memory, memory_limit
from outpace.measure.recurring import ends_of_epochs, recurring, starts_of_epochs
from outpace.measure.sampler import Line, Sampler, loading_share, of_phase
from outpace.measure.statistics import line as fit_line
from outpace.measure.statistics import median
from outpace.measure.subjects import main_device, training_loader, validation_on_others
from outpace.measure.watch import Watcher
from outpace.records.arm import Arm
from outpace.records.compute import ByHand, Compute
from outpace.records.evidence import Evidence, Loss, Overhead, Steps, Sync
from outpace.records.health import Health
from outpace.records.ledger import NOW_AND_THEN
from outpace.records.machine import Machine
from outpace.records.memory import Memory
from outpace.records.run import Recurring, Run
from outpace.seams.alter import DEAR
from outpace.seams.backend import BackendSeam, benchmarks
from outpace.seams.collective import CollectiveSeam
from outpace.seams.host import Host, Step
from outpace.seams.module import ModuleSeam, is_compiled
from outpace.seams.optimizer import OptimizerSeam, can_fuse
from outpace.seams.recompute import RecomputeSeam
from outpace.seams.root import RootFacts
from outpace.seams.tf32 import computed_in
from outpace.seams.transfer import ON_CUDA, SYNCS, TRANSFERS, WAITS, TransferSeam
from outpace.seams.unused import unused
from outpace.seams.where import short

MOST_POINTS = 2000
VARIES = 1.25
"""times as many calls in the mean step, or as few, as in one: what was counted in that is of the mean too"""
UNKNOWN = 0.9
"""of a share's interval, from which on it tells nothing"""


def collect(
    host: Host,
    watcher: Watcher,
    sampler: Sampler,
    machine: Machine,
    contests: Sequence[Contest],
    found: Found,
    *,
    session: Path,
    finished: bool,
    loading_s: float,
) -> Evidence:
    """All evidence there is by now. ``loading_s``: the import of torch, and us."""
    early, recorded = watcher.first_epoch, watcher.steps
    if not early:
        early, recorded = parted(recorded, watcher.second_epoch)
    if not early and found.made_sooner_s:
        early, recorded = recorded, sooner(recorded, found.made_sooner_s)
    steps = clean_steps(recorded)
    phases = mean_phases(steps)
    samples = Counter(sampler.counts)
    if not host.mingled:
        samples = saving(samples)
    if finished and host.steps:
        samples = ended(samples, sampler.since)
    arms = [arm for contest in contests for arm in contest.results()]
    device = main_device(host)
    if device != "cpu":
        phases = on_device(phases, arms)
    module = host.seam(ModuleSeam)
    lines = input_lines(module.callers()) if module is not None else set()
    inputs = collect_input(host, watcher, phases, samples, lines, found, session)
    micro = round(median([float(s.micro_steps) for s in steps])) if steps else 1
    total = watcher.total_steps(micro)
    if total is not None and total < host.steps:
        total = None
    now = perf_counter_ns()
    first = host.first_step_start
    startup = ((first if first is not None else now) - host.started) / 1e9
    came = tuple(_recurring(host, watcher, micro, early, recorded, inputs.forked_s))
    outside = _outside(came, None if finished else total)
    if finished and host.steps:
        _add_tail(host, outside)
    seen = Seen(
        *(startup, recorded, host.steps, outside, samples, lines),
        *(found.by_hand, found.loss_lines, total),
        whole=finished,
        mingled=host.mingled,
        phases=phases if device != "cpu" else None,
    )
    rows = build(seen)
    names = {row.name for row in rows}
    beside = phases.get("elsewhere", 0.0)
    own = {kind: own_share(seen, kind) * beside for kind in ("forward", "optimizer")}
    by_hand = _by_hand(seen, phases)
    mean, cpu = mean_of(steps)
    return Evidence(
        machine=machine.training_on(device),
        run=Run(
            wall_s=(now - host.started) / 1e9,
            startup_s=startup,
            loading_s=loading_s + max(0.0, startup - loading_s) * loading_share(samples),
            finished=finished,
            total_steps=total,
            epoch_steps=watcher.steps_of_epoch(),
            validation_s=None if "validation" in names else _validation_s(host, phases, micro),
            validations=_validations(came, None if finished else total),
            recurring=tuple(one for one in came if one.every is None or not finished),
            starts_s=outside.get("input", 0.0),
            slope_s=seen.slope,
            grown_s=grown(seen),
            told_s=told_s(seen),
            others_cores=found.others_cores,
            leaves=tuple(watcher.course.limits.others()),
            estimated_s=sum(r.seconds for r in rows) if total or finished else None,
        ),
        steps=_steps(host, steps, micro, mean, cpu, device),
        ledger=tuple(rows),
        input=inputs,
        compute=_compute(host, phases, contests, found, by_hand, own, watcher.threads),
        syncs=_calls(host, (*SYNCS, *ON_CUDA, *WAITS)),
        transfers=_calls(host, TRANSFERS),
        memory=_memory(watcher, found.memory),
        arms=tuple(arms),
        loss=_loss(watcher),
        health=found.health.health() if found.health is not None else Health(),
        overhead=_overhead(arms),
        notes=(*found.notes, *(f"the {k} seam failed: {v}" for k, v in host.broken.items())),
    )


def _validation_s(host: Host, phases: dict[str, float], micro: int) -> float | None:
    """Of one that was not seen."""
    step_s = sum(phases.values())
    drawing = phases.get("input", 0.0) / step_s if step_s else 0.0
    batch = host.batch_size * micro
    return validation_on_others(host, step_s, drawing, batch, untouched=True) or None


def _steps(
    host: Host, steps: list[Step], micro: int, mean: float, cpu: float, device: str
) -> Steps:
    # On a GPU most steps are only launched, and now and then one waits for them.
    middle = median([s.wall / 1e9 for s in steps]) if device == "cpu" else mean
    size = host.batch_size
    return Steps(
        count=host.steps,
        median_s=middle,
        mean_s=mean,
        cpu_s=cpu,
        samples_per_s=size * micro / middle if middle else 0.0,
        batch_size=size,
        micro_steps=max(1, micro),
        boundary=host.boundary,
        mingled=host.mingled,
    )


def _recurring(
    host: Host,
    watcher: Watcher,
    micro: int,
    first: Sequence[Step],
    later: Sequence[Step],
    forked_s: float,
) -> Iterator[Recurring]:
    """What came outside of steps: validations, checkpoints, starts of epochs, and the first of them.

    ``first``: steps of the first epoch, where those of others are not as these; ``forked_s``: what an
    epoch's first step computes longer.
    """
    loaded = training_loader(host)
    epoch = loaded[1].steps_of_epoch(micro) if loaded is not None else None
    for name, came in watcher.outside.items():
        if came.count and name == "epoch_end" and epoch:
            yield ends_of_epochs(came, epoch)
        elif name == "compiling" and came.count == 1:
            yield Recurring(name, came.ns / 1e9, 1, came.first, None)  # that it recurs is not seen
        elif came.count:
            yield recurring(name, came, host.steps)
    if loaded is not None and loaded[1].starts and not host.mingled:
        record = loaded[1]
        begun = mean_phases(clean_steps(list(first or later))).get("input", 0.0)
        usual = mean_phases(clean_steps(list(later))).get("input", 0.0)
        starts = record.own_starts
        drawing = (begun + usual * (len(starts) - 1)) / max(1, micro)  # a start has one batch in it
        seconds = max(0.0, sum(start.ns for start in starts) / 1e9 - drawing)
        yield starts_of_epochs(seconds + forked_s * len(starts), len(starts), epoch)
    longer = first_epoch(first, later, epoch) if epoch else None
    if longer is not None:
        yield longer


def _outside(came: Sequence[Recurring], total: int | None) -> dict[str, float]:
    """Seconds outside of the steps of a whole run; of what was seen where its length is unknown."""
    seconds: dict[str, float] = defaultdict(float)
    for one in came:
        seconds[one.name] += one.seconds(total) if total else one.so_far_s
    return seconds


def _validations(came: Sequence[Recurring], total: int | None) -> int | None:
    """How many a run of so many steps has, or had by now."""
    found = [one for one in came if one.name == "validation"]
    return sum(one.times(total) if total else one.count for one in found) if found else None


def ended(samples: Counter[Line], since: Counter[Line]) -> Counter[Line]:
    """The samples, those that no seam explains and that came ``since`` the last step as of the ending."""
    found = Counter(samples)
    for line, count in of_phase(since, "elsewhere").items():
        moved = min(count, found[line])
        found[line] -= moved
        found[line._replace(phase="ending")] += moved
    return +found


def _add_tail(host: Host, outside: dict[str, float]) -> None:
    """What went on after the last step."""
    for name, value in host.phases.take().items():
        kind = name if name in NOW_AND_THEN else "ending"
        if host.mode == "validation" and kind != "checkpoint":
            kind = "validation"
        outside[kind] = outside.get(kind, 0.0) + value / 1e9


def _by_hand(seen: Seen, phases: dict[str, float]) -> ByHand | None:
    if seen.by_hand is None:
        return None
    seconds = by_hand_share(seen) * phases.get("elsewhere", 0.0)
    if seen.by_hand.in_step:
        seconds = phases.get("optimizer", 0.0)
    file, line = seen.by_hand.file, seen.by_hand.busiest
    return ByHand(seconds, seen.by_hand.operators, f"{short(file)}:{line}")


def _of_mean_step(facts: dict[str, Any], times: float) -> dict[str, Any]:
    """What was counted in one step, where steps call their models so often in the mean for once in that, as
    where an actor learns in every second one, or episodes last longer.
    """
    if 1 / VARIES < times < VARIES or not times:
        return {}
    names = ("flops", "flops_forward", "operations")
    return {name: type(facts[name])(times * facts[name]) for name in names if name in facts}


def _compute(
    host: Host,
    phases: dict[str, float],
    contests: Sequence[Contest],
    found: Found,
    by_hand: ByHand | None,
    own: dict[str, float],
    threads: int | None,
) -> Compute:
    """``own``: seconds of a step that the script's own lines take for a phase, by its name; ``threads``: that
    computed the steps.
    """
    beside_s = phases.get("elsewhere", 0.0) - sum(own.values())
    facts: dict[str, Any] = {
        "forward_s": phases.get("forward", 0.0) + own["forward"],
        "backward_s": phases.get("backward", 0.0),
        "optimizer_s": phases.get("optimizer", 0.0) + own["optimizer"],
        "by_hand": by_hand,
        "device": main_device(host),
        "threads": threads or torch.get_num_threads(),
    }
    rooted = host.main_root()
    if rooted is not None:
        facts.update(_model_facts(*rooted))
    optimizer = host.main_optimizer()
    if optimizer is not None:
        group = optimizer.param_groups[0]
        facts["optimizer"] = type(optimizer).__name__
        facts["fused"] = bool(group.get("fused"))
        name = facts["optimizer"]
        facts["fusible"] = all(can_fuse(name, each) for each in optimizer.param_groups)
        # Where a script does not say, torch takes it on a GPU.
        unsaid = group.get("foreach") is None and not facts["fused"]
        facts["foreach"] = bool(group.get("foreach")) or (unsaid and facts["device"] == "cuda")
    module = host.seam(ModuleSeam)
    if module is not None and (judged := module.evaluations()).calls:
        facts["eval_with_grad"] = judged.with_grad / judged.calls
        facts["eval_where"] = judged.with_grad_where
    if (backend := host.seam(BackendSeam)) is not None:
        facts["threads_where"] = backend.threads_where
        facts["anomaly_detection"] = backend.anomaly_detection.trains
        facts["anomaly_where"] = backend.anomaly_detection.where
    facts["models"] = sum(f.has_parameters and f.training_calls > 0 for f in host.roots.values())
    idle = [facts.where for facts, _ in unused(host)]
    facts.update(unused=len(idle), unused_where=next(iter(idle), None))
    if (recompute := host.seam(RecomputeSeam)) is not None:
        facts["recomputed_where"] = recompute.where
    if (collective := host.seam(CollectiveSeam)) is not None:
        facts["exchange_where"] = collective.where
    if (steps := host.seam(OptimizerSeam)) is not None:
        facts.update(set_to_none=not steps.zeroes, mislaid=steps.mislays)
    facts.update(_fixed_cost(contests, found, facts, beside_s))
    device = facts["device"]
    facts["tf32"] = computed_in(device) == "tf32"
    facts["cudnn_benchmark"] = device == "cuda" and benchmarks()
    calls = found.compute.get("calls")
    if rooted is None and calls is not None:
        facts["where"] = calls.where  # no module: what the script computes itself
    if found.frozen is not None:
        facts.update(found.frozen.facts())
    facts |= found.compute
    if module is not None and found.counted_calls:
        facts |= _of_mean_step(facts, (module.calls_a_step() or 0.0) / found.counted_calls)
    # One step was counted; the looks at learning saw more batches.
    several = found.health.paddings.mean() if found.health is not None else None
    if facts.get("padding") and several is not None:
        facts["padding"], facts["trimmed"] = several
    return Compute(**facts)


def _model_facts(module: nn.Module, facts: RootFacts) -> dict[str, Any]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    kinds_of = [type(m) for m in module.modules()]
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    first = next(iter(parameters), None)
    weights = [p for p in parameters if p.dim() == 4]
    return {
        "dtype": str(first.dtype).removeprefix("torch.") if first is not None else "float32",
        "compiled": is_compiled(module),
        "parameters": sum(p.numel() for p in module.parameters()),
        "learnt_bytes": sum(p.nbytes for p in parameters),
        "tensors": len(parameters),
        "convolutions": sum(
            issubclass(k, nn.modules.conv._ConvNd) and "3d" not in k.__name__ for k in kinds_of
        ),
        "batch_norms": len(norms),
        "any_size": any(issubclass(k, nn.modules.pooling._AdaptiveAvgPoolNd) for k in kinds_of),
        "dear": tuple(sorted({k.__name__ for k in kinds_of if issubclass(k, DEAR)})),
        "batch_norm_training": any(m.training for m in norms),
        "channels_last": bool(weights)
        and all(w.is_contiguous(memory_format=torch.channels_last) for w in weights),
        "volumes": any(t.dim() == 5 for t in chain(module.parameters(), module.buffers())),
        "root": type(module).__name__,
        "where": facts.where,
    }


def _fixed_cost(
    contests: Sequence[Contest], found: Found, facts: dict[str, Any], beside_s: float
) -> dict[str, Any]:
    """What computing costs whatever the batch: by arms with half and twice of it, or by the model alone.

    A share: in the meantime, or in another run, a machine may have become a third faster.
    ``beside_s``: seconds of a step beside its computing, which an arm's steps have too, for any batch.
    """
    sizes, times = _by_size(contests)
    fit = fit_line(sizes, times) if sizes else found.by_batch
    if fit is None:
        return {}
    if fit is found.by_batch:
        beside_s = 0.0
    whole = fit.intercept + fit.slope - beside_s
    updating = facts["optimizer_s"]
    clocked = facts["forward_s"] + facts["backward_s"] + updating
    # The model alone was called without its optimizer, whose cost no batch changes.
    beside = updating / clocked if fit is found.by_batch and clocked > 0 else 0.0
    if whole <= 0:
        return {}
    limits = (fit.intercept, fit.intercept_low, fit.intercept_high)
    shares = (min(1.0, max(0.0, limit - beside_s) / whole) for limit in limits)
    fixed, low, high = (beside + (1 - beside) * share for share in shares)
    if high - low > UNKNOWN:
        return {}  # how many operators are called tells more
    return {"fixed": (fixed, low, high)}


def _by_size(contests: Sequence[Contest]) -> tuple[list[float], list[float]]:
    """Sizes of batches and seconds of their steps, all of rounds in which both were run."""
    points: list[tuple[float, float]] = []
    for contest in contests:
        scaled = [
            (contest.arms[name].batch_scale, contest.pairs.get(name, []))
            for name in ("batch_half", "batch_double")
            if name in contest.arms and contest.arms[name].free_input
        ]
        # A block of the base may be in a pair of either.
        bases = max((pairs for _, pairs in scaled), key=len, default=[])
        points += [(1.0, pair[0]) for pair in bases]
        points += [(scale, pair[1]) for scale, pairs in scaled for pair in pairs]
    return [size for size, _ in points], [seconds for _, seconds in points]


def _calls(host: Host, names: tuple[str, ...]) -> tuple[Sync, ...]:
    """Those of these methods that the script's steps made, the dearest first."""
    seam, steps = host.seam(TransferSeam), max(1, host.steps)
    if seam is None:
        return ()
    found = []
    for name in names:
        if count := seam.counts.get(name, 0):
            at = seam.places.get(name, {})
            where = max(at, key=lambda k: at[k], default=None)
            counted = seam.left_at.get(name, steps)
            found.append(Sync(name, count / counted, seam.seconds[name] / 1e9 / counted, where))
    return tuple(sorted(found, key=lambda s: -s.seconds))


def _loss(watcher: Watcher) -> Loss:
    samples, values = watcher.losses.read()
    end = watcher.loss_until if watcher.loss_until is not None else len(values)
    bad = watcher.losses.first_bad()
    each = watcher.losses.each
    step = round(samples[bad] / each) - 1 if bad is not None and each else bad
    samples, values = samples[:end], values[:end]
    stride = max(1, len(values) // MOST_POINTS)
    return Loss(
        tuple(samples[::stride]),
        tuple(v if math.isfinite(v) else None for v in values[::stride]),
        step if bad is not None and bad < end else None,
        tuple(v for v in watcher.validation.read() if math.isfinite(v[1])),
    )


def _memory(watcher: Watcher, memory: Memory) -> Memory:
    """Memory of a step, and its growth while the script ran as it is."""
    trend = watcher.growth.trend()
    name, where, graphs = watcher.retained or (None, None, True)
    return msgspec.structs.replace(
        memory,
        rss_bytes=held_bytes() or 0,
        limit_bytes=memory.limit_bytes or memory_limit(),
        free_bytes=free_memory(),
        growth_bytes_step=trend.bytes_per_step if trend is not None else 0.0,
        growth_low=trend.low if trend is not None and not watcher.fills else 0.0,
        growth_seen_by=trend.witness if trend is not None else None,
        growth_room=trend.room if trend is not None else None,
        retained_name=name,
        retained_where=where,
        retained_data=not graphs,
    )


def _overhead(arms: list[Arm]) -> Overhead | None:
    """What watching costs: the arm with the seams out against the watched base."""
    off = next((a for a in arms if a.name == "seams_off" and a.failed is None), None)
    if off is None:
        return None
    return Overhead(off.gain.speedup, off.cpu_gain.speedup, off.gain.low, off.gain.high)

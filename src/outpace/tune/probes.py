"""Probes of a running training: one step under a counter, the data set and its images tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from outpace.measure.backward_tried import backward_tried
from outpace.measure.by_hand import (
    OwnOperators,
    Update,
    is_scripts_own,
    through_torchs,
)
from outpace.measure.called_again import called_again, called_alike
from outpace.measure.capacity import tightest
from outpace.measure.dispatch import capturing, name_of, tensors_in
from outpace.measure.doubled import Doubled
from outpace.measure.first_epoch import KEPT, kept
from outpace.measure.flops import StepCount, StepCounter, is_view
from outpace.measure.frozen import frozen
from outpace.measure.gradients_read import Readings, asked_for_in_script, named_in_script
from outpace.measure.ignored import Ignored
from outpace.measure.ledger import clean_steps
from outpace.measure.memory import StepMemory
from outpace.measure.origins import Origins
from outpace.measure.sliced import Sliced
from outpace.measure.subjects import main_device, training_loader
from outpace.measure.waste import Waste
from outpace.measure.written import lays_flat, sets_cudnn
from outpace.measure.zeroed import zeroed
from outpace.records.compute import Operators
from outpace.records.memory import Memory
from outpace.seams.backend import BackendSeam
from outpace.seams.generators import moved, states_taken
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.module import ModuleSeam
from outpace.seams.optimizer import OptimizerSeam
from outpace.seams.phases import WORK
from outpace.seams.recompute import RecomputeSeam
from outpace.seams.version_of import version_of
from outpace.seams.where import user_frame
from outpace.serve.changes import state_of
from outpace.serve.doctor import loading_facts
from outpace.serve.open_files import none_drawn
from outpace.serve.probe import Probe, gather_time, has_own_sampler, making_time, probe
from outpace.tune.files import TRACE, write
from outpace.tune.observed import Observed

MOST_KINDS = 100
"""of operators that are told apart"""
TRACED = 5


class ModelCounter(StepCounter):  # type: ignore[no-untyped-call]
    """Counts the model's operators only: not those of a data set that runs between steps."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.waste, self.ignored = Waste(), Ignored()
        rooted = host.main_root()
        parameters = list(rooted[0].parameters()) if rooted is not None else []
        self.own, self.stepping = OwnOperators(parameters), OwnOperators(parameters)
        """what runs outside of all phases, and in the step of an optimizer of the script's own"""
        self.origins, self.movers = Origins(), Origins()
        """of all operators, and of those that move more than the caches hold"""
        self.movers.others = self.origins.others
        self.beside = 0
        """operators of a loss, or of gradients in it, that autograd's state tells as no forward pass"""
        self.module = host.seam(ModuleSeam)
        self.recompute = host.seam(RecomputeSeam)
        self.root = rooted[0] if rooted is not None else None
        self.readings = Readings(host)
        self.buffers = changes_of(self.root)
        self.updating_far_s = 0.0
        """of an optimizer's operators on more than the caches hold"""
        self.doubled, self.sliced = Doubled(self.root), Sliced()
        self.recomputed_s = 0.0
        self.recomputed_bytes = 0
        """what is made in the forward pass and computed again later, of which not all would be kept"""

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Count what forward, backward and optimizer run."""
        if capturing():
            return
        phase = self.host.phases.current()
        if phase != "backward":
            self.readings.see(name_of(operator), args)
        frame = user_frame(sys._getframe(1)) if phase in (None, "forward") else None
        learnt = frame is not None and not phase and self.own.see(operator, args, out, frame)
        beside = self.module is not None and not self.module.inside
        if frame is not None and phase:
            self.own.compute(frame)
        if frame is not None and (phase or learnt):
            self.origins.see(frame, name_of(operator), self.took_s, beside)
        if phase in (None, "forward"):
            self.waste.use(name_of(operator), args)
        elif phase in ("backward", "optimizer") and self.host.on_main_thread():
            # autograd has threads of its own for a GPU
            self.origins.see_afterwards(sys._getframe(1), phase == "optimizer")
        if phase == "optimizer" and self.steps_by_hand():
            frame = user_frame(sys._getframe(1))
            if frame is not None and not through_torchs(sys._getframe(1), frame):
                self.stepping.see(operator, args, out, frame)
        far_s, forward = self.count.far_s, self.count.operations_forward
        before, made = self.count.flops, self.count.bytes_out
        if phase in WORK or learnt:
            super().see(operator, args, kwargs, out)
            if phase != "optimizer":
                self.ignored.see(name_of(operator), args, out, self.took_s, frame)
            self.beside += learnt and self.count.operations_forward == forward
            if frame is not None and self.count.far_s > far_s:
                self.movers.see(frame, name_of(operator), self.took_s, beside)
        if phase in WORK:
            self.doubled.see(operator, args, kwargs, out, self.took_s)
            if frame is not None and phase == "forward":
                self.doubled.meet(args, out, frame)
                self.sliced.meet(name_of(operator), args, frame)
            elif phase == "backward":
                self.sliced.see(name_of(operator), args, out, self.took_s)
            if phase == "optimizer":
                self.updating_far_s += self.count.far_s - far_s
            if self.recompute is not None and self.recompute.inside and phase == "forward":
                self.recomputed_bytes += self.count.bytes_out - made
                self.recomputed_s += self.took_s
            name = name_of(operator)
            flops = self.count.flops - before
            fresh = None if is_view(operator) else next(iter(tensors_in(out)), None)
            self.waste.see(name, args, flops, phase != "forward", self.took_s, fresh)

    def steps_by_hand(self) -> bool:
        """Whether the optimizer that was stepped last is of the script's own."""
        seam = self.host.seam(OptimizerSeam)
        last = seam.last() if seam is not None else None
        return last is not None and is_scripts_own(last)

    def recomputing_moves(self) -> bool:
        """Whether to compute activations again moves more than they: what the forward pass leaves behind."""
        if self.recompute is None or self.recompute.where is None:
            return False
        return self.recompute.draws or changes_of(self.root) != self.buffers

    def by_hand(self) -> Update | None:
        """Where the script changes its parameters, if it does."""
        outside, inside = self.own.update(), self.stepping.update()
        return outside if inside is None else inside._replace(in_step=True)


def changes_of(module: torch.nn.Module | None) -> dict[str, tuple[int, int]]:
    """Which tensor each of a model's buffers is, and how often torch saw it change."""
    buffers = module.named_buffers() if module is not None else ()
    return {name: (id(buffer), version_of(buffer)) for name, buffer in buffers}


def probe_operators(observed: Observed) -> Iterator[None]:
    """FLOPs and operators of one step."""
    counter = ModelCounter(observed.host)
    observed.host.group, observed.host.dirty = 1, True
    module = observed.host.seam(ModuleSeam)
    before = module.calls_to_learn() if module is not None else 0
    counter.__enter__()
    yield None
    counter.__exit__(None, None, None)
    if module is not None:
        observed.found.counted_calls = module.calls_to_learn() - before
    on_cpu = main_device(observed.host) == "cpu"  # elsewhere operators are only launched
    read = counter.readings.met or named_in_script()
    observed.found.compute.update(
        flops=float(counter.count.flops),
        flops_forward=float(counter.count.flops_forward),
        operations=counter.count.operations_forward + counter.beside,
        moved_bytes=float(counter.count.far_bytes),
        moving_s=counter.count.far_s,
        updating_moving_s=counter.updating_far_s,
        fresh_bytes=float(counter.count.fresh_bytes),
        recomputed_bytes=float(counter.recomputed_bytes),
        recomputed_s=counter.recomputed_s,
        recomputed_moves=counter.recomputing_moves(),
        unused_read=read or asked_for_in_script(),
        gradients_read=read,
        laid_flat=lays_flat(),
        cudnn_set=sets_cudnn(),
        backward_tried=seeks_anomalies(observed.host) and backward_tried(),
        denormals=denormals(observed.host),
        calls=counter.origins.busiest(),
        dearest=counter.origins.dearest() if on_cpu else None,
        mover=counter.movers.dearest() if on_cpu else None,
        optimizer_where=counter.origins.updating(),
        double_s=counter.doubled.seconds if counter.doubled.where else 0.0,
        double_spared=counter.doubled.spared(),
        double_where=counter.doubled.where,
        double_by=counter.doubled.by,
        **_sliced(counter, on_cpu),
        untouched_bytes=counter.waste.untouched_bytes(),
        spent=longest(counter.count),
        autocast=counter.count.half,
        padding=counter.waste.padding,
        trimmed=counter.waste.trimmed,
        sequence_flops=counter.waste.sequence_flops,
        empty=_share_empty(counter, on_cpu),
        empty_several=counter.waste.several,
        ignored=counter.ignored.share,
        ignored_s=counter.ignored.seconds if on_cpu else 0.0,
        ignored_where=counter.ignored.where,
    )
    observed.found.by_hand = counter.by_hand()
    observed.found.loss_lines = set(counter.own.learnt)
    if counter.failure is not None:
        observed.found.notes.append(f"operators could not all be counted: {counter.failure}")


def _sliced(counter: ModelCounter, on_cpu: bool) -> dict[str, Any]:
    """Gradients of slices that a loop takes, each as large as what is sliced."""
    worst = counter.sliced.worst() if on_cpu else None
    return dict(zip(("sliced_s", "sliced", "sliced_where"), worst, strict=True)) if worst else {}


def _share_empty(counter: ModelCounter, on_cpu: bool) -> float:
    """By FLOPs, and the time of all that have some: one operator's alone anything may disturb."""
    waste, count = counter.waste, counter.count
    share = waste.flops / count.flops if count.flops else 0.0
    total = sum(map(sum, count.spent.values()))
    if not on_cpu or not total:
        return share
    products = sum(sum(times) for (_, flops, _), times in count.spent.items() if flops)
    return (share * products + waste.making_s) / total


def seeks_anomalies(host: Host) -> bool:
    """Whether the script trains under torch's anomaly detection."""
    backend = host.seam(BackendSeam)
    return backend is not None and backend.anomaly_detection.trains


def probe_calls(observed: Observed) -> Iterator[None]:
    """Calls of a model, and gradients, that come to nothing."""
    if main_device(observed.host) != "cpu":
        return
    found = yield from called_again(observed.host)
    if found is not None:
        observed.found.compute.update(again_s=found.seconds, again_where=found.where)
    same = yield from called_alike(observed.host)
    if same is not None:
        observed.found.compute.update(
            alike=same.calls, alike_share=same.share, alike_where=same.where
        )
    waste = yield from zeroed(observed.host)
    if waste is not None:
        observed.found.compute.update(
            zeroed_s=waste.seconds, zeroed_where=waste.where, zeroed_of=waste.model
        )
    observed.found.frozen = yield from frozen(observed.host)


def longest(count: StepCount) -> tuple[Operators, ...]:
    """Operators by the time that they took, the longest first; those beyond `MOST_KINDS` in one."""
    found = [
        Operators(name, len(took), sum(took), float(flops), float(size))
        for (name, flops, size), took in count.spent.items()
    ]
    found.sort(key=lambda each: -each.seconds)
    return (*found[:MOST_KINDS], *together(found[MOST_KINDS:]))


def together(few: list[Operators]) -> Iterator[Operators]:
    """Several kinds as one, of the mean size; nothing for none."""
    calls = sum(each.calls for each in few)
    if calls:
        flops = sum(each.calls * each.flops for each in few) / calls
        size = sum(each.calls * each.moved_bytes for each in few) / calls
        yield Operators("others", calls, sum(each.seconds for each in few), flops, size)


def probe_trace(observed: Observed) -> Iterator[None]:
    """What the training thread did in a few steps, for a trace."""
    phases = observed.host.phases
    events: list[tuple[str, int, int]] = []
    phases.starts, phases.events = [], events
    for _ in range(TRACED):
        begun, first = perf_counter_ns(), observed.host.steps
        yield None
        last = observed.host.steps - 1  # short steps come in groups
        name = f"step {first}" if last == first else f"steps {first} to {last}"
        events.append((name, begun, perf_counter_ns()))
    phases.events = None
    write(observed.session / TRACE, events)


def probe_memory(observed: Observed) -> Iterator[None]:
    """Memory of one step, by kind."""
    rooted = observed.host.main_root()
    memory = StepMemory([rooted[0]] if rooted else [], list(observed.host.optimizers))
    observed.host.group, observed.host.dirty = 1, True
    limit = tightest(main_device(observed.host))
    memory.__enter__()
    yield None
    memory.__exit__(None, None, None)
    kinds = memory.by_kind()
    parts = (kinds.parameters, kinds.gradients, kinds.optimizer, kinds.activations,
             kinds.temporaries, kinds.other)  # fmt: skip
    observed.found.memory = Memory(
        peak_bytes=sum(parts),
        beside_bytes=max(0, limit.used + memory.peak_bytes - sum(parts)),
        by_kind=kinds,
        limit_bytes=limit.bytes,
    )
    if memory.failure is not None:
        observed.found.notes.append(f"memory could not all be followed: {memory.failure}")


def denormals(host: Host) -> float:
    """Largest share of denormal numbers in a parameter."""
    rooted = host.main_root()
    worst = 0.0
    if rooted is not None:
        for parameter in rooted[0].parameters():
            if (
                parameter.dtype == torch.float32 and parameter.numel() and parameter.is_cpu
            ):  # a GPU takes them as any other number
                values = parameter.detach().abs()
                tiny = ((values > 0) & (values < torch.finfo(torch.float32).tiny)).float().mean()
                worst = max(worst, float(tiny))
    return worst


class Snapshot:
    """The random generators' states after each batch that is drawn, and that of what makes batches."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.state: dict[str, Any] | None = None
        self.made_by: tuple[Record, int] | None = None
        self.fed_back = False
        """the script changed what makes batches between two of one epoch"""
        self.seam = host.seam(LoaderSeam)
        if self.seam is not None:
            self.seam.on_draw, self.seam.before_draw = self.take, self.compare

    def take(self, record: Record, _batch: Any) -> None:
        """Keep the states as they are now."""
        self.state, self.made_by = states_taken(), None
        if record.trains and (state := self.maker(record)) is not None:
            self.made_by = record, state

    def compare(self, _record: Record) -> None:
        """Before the next batch is made, be it of a validation that uses the same data set otherwise."""
        if self.made_by is not None and self.made_by[0].within:
            self.fed_back |= self.maker(self.made_by[0]) not in (self.made_by[1], None)

    def maker(self, record: Record) -> int | None:
        """A number for all that makes this loader's batches here; None where none can be told."""
        assert self.seam is not None
        loader = self.seam.loader_of(record)
        if loader is None or loader.num_workers:
            return None
        self.host.dirty = True
        return state_of(loader.dataset, loader.batch_sampler, loader.sampler, loader.collate_fn)

    def end(self) -> None:
        """Keep none any more."""
        if self.seam is not None:
            self.seam.on_draw = self.seam.before_draw = None


def step_streams(snapshot: Snapshot) -> set[str]:
    """The generators that were drawn from between the batch and now, a step's end."""
    return moved(snapshot.state, states_taken()) if snapshot.state is not None else set()


def probe_input(observed: Observed) -> None:
    """Is the data set deterministic, can it be sliced, what would slices and a cache cost?"""
    loaded = training_loader(observed.host)
    if loaded is None:
        return
    observed.found.input.update(loading_facts(loaded[0]))
    with none_drawn(loaded[0].dataset):
        _probe_loader(observed, *loaded)


def _probe_loader(observed: Observed, loader: DataLoader[Any], record: Record) -> None:
    found = probe(loader)
    facts = observed.found.input
    facts.update(
        deterministic=found.deterministic,
        same_on_one_thread=found.same_on_one_thread,
        random_streams=found.random_streams,
        sliceable=found.sliceable,
        why_not_sliceable=found.why_not_sliceable,
        sample_bytes=found.sample_bytes,
        samples=found.samples,
        held=found.held,
    )
    facts.update(own_sampler=has_own_sampler(loader), others_random=others_random(observed, loader))
    if loader.num_workers:
        facts["made_here_s"] = making_time(loader)
    else:
        probe_again(observed, record, found)
    if found.sliceable:
        facts["slice_s"] = gather_time(loader, "slice", 0)
    if found.deterministic:
        most = observed.cache_limits.ram_bytes
        room = observed.machine.memory_bytes // 2 if most is None else most
        facts["cached_s"] = gather_time(loader, "cache", room)


def others_random(observed: Observed, loader: DataLoader[Any]) -> bool:
    """Whether samples of another DataLoader than the training's are drawn by chance: what is put under all of
    them would leave the training other random numbers.
    """
    seam = observed.host.seam(LoaderSeam)
    assert seam is not None
    for other in list(seam.records):
        if other is loader or isinstance(other.dataset, IterableDataset):
            continue
        if other.dataset is loader.dataset and other.collate_fn is loader.collate_fn:
            continue  # that was looked at
        try:
            with none_drawn(other.dataset):
                found = probe(other, slices=False)
                if not (found.deterministic and found.same_on_one_thread):
                    return True  # or it could not be tried
        except Exception:  # as of a file that only its workers open
            return True
    return False


def probe_again(observed: Observed, record: Record, found: Probe) -> None:
    """Are samples that were drawn before there so much sooner that later epochs are others than the first?"""
    watcher = observed.watcher
    fetched = watcher.fetches(record.number, workers=False)
    steps = clean_steps(watcher.steps)
    if found.again_s is None or fetched is None or not fetched.batches or not steps:
        return
    limit = tightest("cpu")
    if found.samples is None or found.samples * found.sample_bytes > limit.bytes - limit.used:
        return  # no system keeps so many, though it has those that were read a moment ago
    made_s = fetched.wall / fetched.batches / 1e9
    batch_s = found.again_s * observed.host.batch_size
    step_s = sum(step.wall / max(1, step.micro_steps) for step in steps) / len(steps) / 1e9
    # In the training itself a sample takes longer than here, which says nothing of keeping them.
    if kept(made_s, batch_s, step_s) and found.drawn_s > KEPT * found.again_s:
        observed.found.input["again_s"] = batch_s
        observed.found.made_sooner_s = made_s - batch_s

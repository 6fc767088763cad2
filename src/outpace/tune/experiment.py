"""The experiments of `diagnose`, in the target's own process.

First the run is watched as it is; then the data set, the operators and the memory are probed; then
arms are compared. The process ends when all is measured, its results are thrown away.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, perf_counter_ns
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import torch

from outpace.measure.arms import FEWEST_ROUNDS, Contest, Program, Scheduler, settled
from outpace.measure.fixed_cost import called_by_rows, fixed_cost
from outpace.measure.health import HealthWatch
from outpace.measure.keeping_graphs import times_with_graphs
from outpace.measure.others import Others, said
from outpace.measure.paging import Paging
from outpace.measure.subjects import training_loader
from outpace.measure.unreached import trainings_later
from outpace.measure.workers import WorkerMemory
from outpace.records.arm import ONE_THREAD
from outpace.records.evidence import Evidence
from outpace.remedies.base import Remedy
from outpace.remedies.catalog import all_remedies
from outpace.seams.alter import DEAR, DROPOUT, PassingThrough, parts_of
from outpace.seams.helper import EACH
from outpace.seams.host import Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.where import user_frames
from outpace.tune.files import CONTESTS, MARKER, read, write
from outpace.tune.from_step import begin_there
from outpace.tune.image_probes import probe_images
from outpace.tune.observed import Observed
from outpace.tune.probes import (
    Snapshot,
    probe_calls,
    probe_input,
    probe_memory,
    probe_operators,
    probe_trace,
    step_streams,
)
from outpace.tune.ranks import (
    DECIDED_AT,
    agree,
    beside,
    exchange_arms,
    schedule,
    several_ranks,
    started,
    without_exchange,
)

LEAST_S = 20.0
MOST_S = 60.0
SHARE_OF_RUN = 0.05
STEPS = 150
"""worth of time: with fewer most arms are compared once or not at all"""
LEAST_WITH_CHANGES_S = 60.0
MOST_WITH_CHANGES_S = 240.0
STEPS_WITH_CHANGES = 500
"""worth of time: some twelve arms, eight rounds"""
MOST_LATER = 3
FEWEST_WATCHED = 4
FIRST_LOOKS = 4
LOOKS = 8
LOOK_S = 2.0
"""steps looked at closely, and seconds for them, before and after the training is watched"""
ENOUGH_WATCHED = 400
WAITED = 0.5
"""of the time that is left, for the first epoch to end where later ones are others"""
LARGE = 16
"""samples of a batch, of which one more or less is no other batch"""
BEYOND = 1.1
"""times its steps"""
MOST_PARTS = 3
COMPUTE, CHANGES = "compute", "changes of the model"
"""contests, of which one is the last"""
LEAST_WATCHED = 2
"""steps as they are, however long: those that are looked into take longer, and tell of no others"""
LEAST_AFTER_START_S = 5.0
"""that are left of the time, where the script's start counts too"""
HARDLY = 0.15
"""of the time: what is left of the last contest then is not worth another run"""
ROOMY = 0.8
"""share of the memory that a step may be predicted to take for more to be tried"""
WORKERS_EVERY_S = 1.0
ROUNDS_OF_WATCHING = 12
"""what watching costs is known within some percent then; within one it would take most of the time"""


class Shares(NamedTuple):
    """Of the time that is left, in this order."""

    watching: float
    own_arms: float
    compute: float


SHARES = Shares(0.25, 0.3, 1.0)
SHARES_WITH_CHANGES = Shares(0.1, 0.12, 0.55)
"""where the model with less to do is compared too"""


class Experiment:
    """The program of one diagnosing process."""

    step: Step
    """the last that ended"""
    ends_by: float | None = None
    """steps by which the target is to have ended, once all is measured and it is let go on"""

    def __init__(self, observed: Observed) -> None:
        spec = observed.spec
        self.observed = observed
        self.host = observed.host
        self.time_s = float(spec["time_s"] or MOST_S)
        self.given_time = spec["time_s"] is not None
        self.spent_before = float(spec.get("spent_s", 0.0))
        self.earlier = read(observed.session / CONTESTS, {}) if spec.get("again") else {}
        self.shares = SHARES_WITH_CHANGES if spec.get("changes") else SHARES
        self.max_steps = spec.get("steps")
        self.begun = 0.0
        self.others = Others(beside if several_ranks() else started)
        self.parts: dict[str, str] = {}
        """parts of the model that can be left out, and their classes"""
        self.slowed = False
        """steps are looked into so closely that their time by line would mislead"""
        self.looked = observed.found.health = HealthWatch(self.host)
        self.learnt_in: set[CodeType] = set()
        """functions that a backward pass was called in, or around it"""
        self.note_backwards()
        self.scheduler = Scheduler(
            self.host,
            self.program(),
            marker=observed.session / MARKER,
            excluded=spec.get("excluded", {}),
            progress=self.told,
            done=self.done,
            workers=observed.worker_pids,
            queued=observed.queued,
            settle=lambda: settled(*self.host.roots),
        )
        self.host.listeners.append(self.on_step)
        observed.until_another()

    def note_backwards(self) -> None:
        """Which functions train."""
        own = self.host.on_backward

        def see(loss: torch.Tensor) -> None:
            if self.slowed:  # such steps are not timed
                self.learnt_in.update(frame.f_code for frame in user_frames(sys._getframe(1)))
            if own is not None:
                own(loss)

        self.host.on_backward = see

    def on_step(self, step: Step) -> None:
        """A step ended."""
        self.step = step
        if not self.begun:
            if self.observed.spec.get("from_start"):
                started_s = (perf_counter_ns() - self.host.started) / 1e9
                self.time_s = max(min(self.time_s, LEAST_AFTER_START_S), self.time_s - started_s)
            self.begun = perf_counter() - self.spent_before
            self.observed.before_finish.append(self.keep_contests)
        if step.index == 2 and not self.given_time:
            self.time_s = self.time_for(step)
        if self.max_steps is not None and self.host.steps >= int(self.max_steps):
            self.scheduler.close()
            self.done()
            return
        if self.ends_by is not None and (self.host.steps > self.ends_by or self.left() <= 0):
            self.stop()  # its length was another
            return
        self.observed.safely(self.scheduler.on_step, step)
        # Of the step that begins, which an arm may run unseen.
        self.observed.pause_sampler(self.slowed or not self.host.setup.watched)

    def time_for(self, step: Step) -> float:
        """5 % of the run where its length is known, or the time of some 150 steps; 20 s to 60.

        With changes of the model among the arms so many steps' time, 60 s to 240.
        """
        if self.observed.spec.get("changes"):
            wanted = STEPS_WITH_CHANGES * step.wall / 1e9
            return min(MOST_WITH_CHANGES_S, max(LEAST_WITH_CHANGES_S, wanted))
        total = self.observed.watcher.total_steps(step.micro_steps)
        if total is None:
            return MOST_S
        wanted = max(min(STEPS, total), SHARE_OF_RUN * total) * step.wall / 1e9
        return min(MOST_S, max(LEAST_S, wanted))

    def keep_contests(self) -> None:
        """Write down what was compared, for a run that goes on with it."""
        kept = {c.name: {"pairs": c.pairs, "spent": c.spent} for c in self.observed.contests}
        times = self.observed.found.compute.get("eval_times")
        measured = self.observed.stopped and self.observed.another is None
        complete = measured or self.all_but_complete()
        found = {"contests": kept, "complete": complete, "eval_times": times, "time_s": self.time_s}
        write(self.observed.session / CONTESTS, found)

    def all_but_complete(self) -> bool:
        """Whether what is left to compare is not worth another run's start."""
        contest = self.scheduler.contest
        last = CHANGES if self.observed.spec.get("changes") else COMPUTE
        if contest is None or contest.name != last or contest.rounds < FEWEST_ROUNDS:
            return False
        return self.left() < HARDLY * self.time_s

    def left(self) -> float:
        """Seconds of the time for experiments that are left."""
        return self.time_s - (perf_counter() - self.begun)

    def told(self, contest: Contest) -> None:
        """Pass progress on."""
        done = min(self.time_s, self.time_s - self.left())
        self.observed.tell(
            "experiments", done, self.time_s, f"{contest.name}, round {contest.rounds}", contest
        )

    def program(self) -> Program:
        """Watch, probe, compare."""
        observed = self.observed
        looked = self.looked
        if several_ranks():
            yield from self.together()
            return
        if not self.earlier:
            yield from self.slowly(looked.look(FIRST_LOOKS, LOOK_S))
        # Before the run is watched: a short one ends meanwhile, and its ledger needs the lines of its loss.
        yield from self.slowly(self.until_helpers_are_known())
        yield from self.slowly(probe_operators(observed))
        yield from self.slowly(probe_calls(observed))
        yield from self.watch()
        if not self.earlier:
            yield from self.slowly(looked.look(LOOKS, LOOK_S))
        if looked.failure is not None:
            observed.found.notes.append(f"learning could not all be looked at: {looked.failure}")
        yield from self.slowly(self.probe())
        if observed.found.made_sooner_s:
            yield from self.second_epoch()
        observed.watcher.stop_recording()
        evidence = observed.evidence()
        for contest in self.contests(evidence):
            observed.contests.append(contest)
            if not contest.late:
                yield contest
            self.probe_validation()

    def until_helpers_are_known(self) -> Iterator[None]:
        """Steps one by one while a model may yet turn out to help in each: its operators are theirs too."""
        asked = [facts for facts in list(self.host.roots.values()) if facts.asked]
        while self.host.steps <= EACH + 1 and not all(f.evaluations.helps for f in asked):
            self.host.group, self.host.dirty = 1, True
            yield None

    def contest(self, arms: dict[str, Setup], share: float, name: str, **options: Any) -> Contest:
        """Arms to compare in a share of the time, with what earlier runs of the script measured of them."""
        earlier = self.earlier.get("contests", {}).get(name, {})
        pairs = {arm: [tuple(p) for p in rows] for arm, rows in earlier.get("pairs", {}).items()}
        spent = earlier.get("spent", 0.0)
        seconds = max(2.0, share * (self.left() + spent))
        return Contest(arms, seconds, name, pairs=pairs, spent=spent, **options)

    def second_epoch(self) -> Iterator[None]:
        """Watch again once samples are kept, where the first epoch ends in time."""
        host, watcher, loaded = self.host, self.observed.watcher, training_loader(self.host)
        epoch = loaded[1].steps_of_epoch(host.micro_steps) if loaded is not None else None
        left = epoch - host.steps if epoch is not None else math.inf
        if watcher.second_epoch is None and left * self.step.wall / 1e9 > WAITED * self.left():
            return
        last = host.steps + BEYOND * max(0.0, left)
        while watcher.second_epoch is None:
            if host.steps > last:
                return
            self.observed.tell("watching", self.time_s - self.left(), self.time_s)
            yield None
        self.observed.found.made_sooner_s = 0.0
        watcher.begin_anew()
        for _ in range(FEWEST_WATCHED):
            yield None
        yield from self.watch()

    def together(self) -> Program:
        """What one of several ranks may do: as all others, at the same steps."""
        observed, host = self.observed, self.host
        host.most_in_group = host.group = 1
        yield None
        ended = [perf_counter()]
        while host.steps < DECIDED_AT:
            yield None
            settled(*host.roots)
            ended.append(perf_counter())
        step_s = float(np.median(np.diff(ended)))  # the first steps take longer
        total = observed.watcher.total_steps(1)
        left_s = (total - host.steps) * step_s if total is not None else math.inf
        try:
            agreed = agree(schedule(step_s, min(self.time_s, left_s)))
        except (RuntimeError, ValueError, AttributeError) as error:
            note = f"the ranks could not agree on experiments ({error}): they were watched only"
            observed.found.notes.append(note)
            yield from self.watch()
            return
        yield from self.watch(agreed.begin)
        observed.watcher.stop_recording()
        contest = Contest(exchange_arms(), 0.0, "communication")
        observed.contests.append(contest)
        yield from without_exchange(host, agreed, contest)

    def slowly(self, steps: Iterator[None]) -> Iterator[None]:
        """Steps that take longer than they would: the sampler looks away."""
        self.slowed = True
        self.observed.pause_sampler(True)
        yield from steps
        self.slowed = False
        self.observed.pause_sampler(False)

    def watch(self, until: int | None = None) -> Iterator[None]:
        """Steps as they are, until there are enough of them, or so many."""
        watched, begun, paging = 0, perf_counter(), Paging()
        workers, looked = WorkerMemory(self.observed.worker_pids), begun - WORKERS_EVERY_S
        while True:
            spent = self.time_s - self.left()
            self.observed.tell("watching", spent, self.time_s)
            self.observed.found.compute.update(paging.a_step())
            if self.earlier and watched >= FEWEST_WATCHED:
                self.observed.found.others_cores = self.others.cores()
                return
            now = perf_counter()
            share = (now - begun) / self.time_s
            if now - looked > WORKERS_EVERY_S:
                looked = now
                workers.look(self.host.steps)
                # At once, as the script may end meanwhile.
                self.observed.found.input["worker_growth_bytes"] = workers.growth()
            late = share > self.shares.watching and watched >= FEWEST_WATCHED
            enough = late or (watched >= ENOUGH_WATCHED and share > 0.1)
            if until is not None:
                over = self.host.steps >= until
            else:
                over = enough or (spent > 0.6 * self.time_s and watched >= LEAST_WATCHED)
            if over:
                self.observed.found.others_cores = others = self.others.cores()
                if note := said(others):
                    self.observed.found.notes.append(note)
                return
            watched += 1
            yield None
            paging.note(self.step)

    def probe(self) -> Iterator[None]:
        """Single steps under a counter, and the data set tried."""
        observed = self.observed
        if observed.spec.get("trace"):
            yield from probe_trace(observed)
        yield from probe_memory(observed)
        unsized = training_loader(self.host) is None or "batch_half" in self.scheduler.excluded
        if unsized and observed.found.memory.full < ROOMY:
            observed.found.by_batch = fixed_cost(self.host)
        observed.found.compute["called_by_rows"] = called_by_rows(self.host)
        yield from self._probe_streams()
        self.probe_validation()
        for what, tried in (
            ("the data set", probe_input),
            ("the decoding of images", probe_images),
        ):
            try:
                tried(observed)
            except Exception as error:
                observed.found.notes.append(f"{what} could not be tried here: {error!r}")
        if observed.spec.get("changes"):
            yield from self.probe_parts()

    def probe_validation(self) -> None:
        """What graphs cost a validation, as soon as one that keeps them was seen, here or by a run before."""
        facts = self.observed.found.compute
        facts.setdefault("eval_times", self.earlier.get("eval_times"))
        if facts.get("eval_times") is None:
            facts["eval_times"] = times_with_graphs(self.host)

    def probe_parts(self) -> Iterator[None]:
        """Which parts of the model can be left out."""
        rooted = self.host.main_root()
        if rooted is None:
            return
        passing = PassingThrough(rooted[0])
        yield None
        passing.close()
        self.parts = passing.kinds
        self.observed.found.compute["parts"] = passing.kinds

    def _probe_streams(self) -> Iterator[None]:
        streams: set[str] = set()
        snapshot = Snapshot(self.host)
        for _ in range(2):
            yield None
            streams |= step_streams(snapshot)
        snapshot.end()
        self.observed.found.input["step_streams"] = tuple(sorted(streams))
        self.observed.found.input["fed_back"] = snapshot.fed_back

    def contests(self, evidence: Evidence) -> Iterator[Contest]:
        """First what belongs to the step as it is, then what belongs to its compute alone."""
        loader = training_loader(self.host)
        loaded = loader is not None
        own: dict[str, Setup] = {"as_is": AS_IS, "seams_off": replace(AS_IS, watched=False)}
        # What an input gains that is the first epoch's alone, no other has to gain.
        if loaded and not self.observed.found.made_sooner_s:
            own["input_free"] = replace(AS_IS, free_input=True)
            for remedy in self.probed(evidence):
                own.update(remedy.fed_arms(evidence))
        if evidence.compute.device != "cpu":
            own["transfer_free"] = replace(AS_IS, free_transfer=True)
            own["sync_free"] = replace(AS_IS, free_sync=True)
        most = {"seams_off": ROUNDS_OF_WATCHING}
        options: dict[str, Any] = {"narrow": 0.01, "most_rounds": most}
        yield self.contest(own, self.shares.own_arms, "input and watching", **options)
        scalable = loader is not None and self.scalable(loader[1])
        compute = self.compute_arms(evidence, loaded=loaded, scalable=scalable)
        yield self.contest(compute, self.shares.compute, COMPUTE)
        if self.observed.spec.get("changes"):
            yield self.contest(self.model_arms(loaded), 1.0, CHANGES)

    def scalable(self, record: Record) -> bool:
        """Whether steps can be given half and double batches: of one loader alone, and none has failed."""
        seam = self.host.seam(LoaderSeam)
        assert seam is not None
        every = [one for one in list(seam.records.values()) if one is not record]
        others = [one for one in every if one.beside and one.runs]
        failed = self.observed.spec.get("excluded", {}).keys() & {"batch_half", "batch_double"}
        return record.recent.scalable and not others and not failed

    def model_arms(self, loaded: bool) -> dict[str, Setup]:
        """The model with less to do: one part of each kind left out, dropout, half of it frozen."""
        base = replace(AS_IS, free_input=loaded)
        arms: dict[str, Setup] = {"input_free" if loaded else "as_is": base}
        rooted = self.host.main_root()
        if rooted is None:
            return arms
        root = rooted[0]
        of_kind = {kind: name for name, kind in self.parts.items()}
        changes = [("without", name) for name in list(of_kind.values())[:MOST_PARTS]]
        parts = [name for name, part in parts_of(root) if next(part.parameters(), None) is not None]
        if len(parts) > 1:
            changes.append(("frozen", parts[len(parts) // 2 - 1]))
        if any(isinstance(m, DROPOUT) and m.p > 0 for m in root.modules()):
            changes.append(("without dropout", ""))
        if any(isinstance(m, DEAR) for m in root.modules()):
            changes.append(("relu", ""))
        arms.update({" ".join(change).strip(): replace(base, altered=change) for change in changes})
        return arms

    def compute_arms(self, evidence: Evidence, *, loaded: bool, scalable: bool) -> dict[str, Setup]:
        """Arms that change the step's compute, with its input free where that can be."""
        base = replace(AS_IS, free_input=loaded)
        arms: dict[str, Setup] = {"input_free" if loaded else "as_is": base}
        if scalable:
            size = self.host.batch_size
            if size >= LARGE or size % 2 == 0:  # else the half is more than that, or less
                arms["batch_half"] = replace(base, batch_scale=0.5)
            if evidence.memory.full_at(2.0) < ROOMY:
                arms["batch_double"] = replace(base, batch_scale=2.0)
        if evidence.may_be_held_up:
            arms[ONE_THREAD] = replace(base, threads=1)
        for remedy in self.probed(evidence):
            arms.update(remedy.arm(evidence))
        if "bf16" in arms and "channels_last" in arms:
            both = replace(arms["bf16"], channels_last=True)
            arms["bf16+channels_last"] = both
        return arms

    def probed(self, evidence: Evidence) -> list[Remedy]:
        """The remedies that are measured here."""
        remedies = [kind() for kind in all_remedies()]
        return [one for one in remedies if one.probed and one.applies(evidence).yes]

    def done(self) -> None:
        """All is measured: a target that is about to end may, to see its last validation and checkpoint."""
        run = self.observed.evidence().run
        soon = run.estimated_s is not None and run.estimated_s - run.wall_s < self.left()
        if self.max_steps is None and soon and self.left() > 0 and not several_ranks():
            self.ends_by = BEYOND * (run.total_steps or math.inf)
            return
        self.stop()

    def stop(self) -> None:
        """Watch no longer, and tell what of the script was not come to."""
        if not several_ranks():
            self.host.guard("later", self.tell_of_later)
        self.observed.stop()

    def tell_of_later(self) -> None:
        """Trainings that the script was to come to."""
        for later in trainings_later(sys._getframe(1), self.learnt_in)[:MOST_LATER]:
            told = f"the script trains at {later.where} too, later; nothing is told of that"
            if later.name:
                told = (
                    f"{later.name} ({later.where}) trains too, later in the script; nothing is told of "
                    f"that: --from {later.name} measures it"
                )
            self.observed.found.notes.append(told)


def begin(spec: dict[str, Any]) -> None:
    """Start observing the target that is about to run in this process."""
    begin_there(spec, _observe)


def _observe(spec: dict[str, Any]) -> None:
    observed = Observed(spec, switching=not several_ranks())
    Experiment(observed)
    observed.begin()

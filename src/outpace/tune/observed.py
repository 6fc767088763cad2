"""A process whose training is observed: host, watcher, sampler, and evidence at the end.

Both experiments (diagnose, trials) and plain watching build on it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from outpace.measure.arms import Contest
from outpace.measure.collect import collect
from outpace.measure.found import Found
from outpace.measure.last_lines import LastLines
from outpace.measure.sampler import WORKER, Sampler, phase_reader
from outpace.measure.subjects import training_loader
from outpace.measure.trainings import Another, Trainings
from outpace.measure.unwatched import unwatched
from outpace.measure.watch import Watcher
from outpace.records.evidence import CacheLimits, Evidence
from outpace.records.files import to_json, write_text
from outpace.records.machine import Machine
from outpace.seams.fetch import FetchSeam
from outpace.seams.host import ACCUMULATED, Host, Step, on_stderr
from outpace.seams.loader import LoaderSeam
from outpace.seams.resting import wake_all, worker_pids
from outpace.seams.setup import AS_IS
from outpace.tune.assemble import assemble
from outpace.tune.ending import end_process
from outpace.tune.files import EVIDENCE, PROGRESS_EVERY_S, STATUS, has_steps, tell, write
from outpace.tune.ranks import several_ranks, world


class Observed:
    """What this process observes of its target; ``finish`` writes it down, once."""

    def __init__(self, spec: dict[str, Any], *, switching: bool) -> None:
        self.spec = spec
        self.session = Path(spec["session"])
        self.machine = msgspec.convert(spec["machine"], Machine)
        self.cache_limits = msgspec.convert(spec.get("cache_limits", {}), CacheLimits)
        self.host: Host = assemble(
            started_ns=spec.get("started_ns"),
            switching=switching,
            seed_shift=int(spec.get("seed_shift", 0)),
        )
        if spec.get("from_step"):
            self.host.by_hand_after = ACCUMULATED  # an optimizer there is
        self.watcher = Watcher(self.host)
        self.sampler = Sampler(
            threading.get_ident(), phase_reader(self.host.phases, lambda: self.host.mode)
        )
        self.host.on_move.append(self._look_here)
        self.host.listeners.append(lambda step: self.sampler.since.clear())
        self.contests: list[Contest] = []
        self.found = Found()
        self.ended = self.finished = False
        """the target's process comes to its end; the training has"""
        self.stopped = False
        """we have measured all that we want"""
        self.another: Another | None = None
        """training that followed the one which was watched"""
        self.over = False
        """its loop came to its end, whatever the script made of that"""
        self.last_lines = LastLines()
        self.before_finish: list[Callable[[], None]] = []
        self.pid = os.getpid()
        self.last_progress = 0.0
        self.loading_ns = 0

    def begin(self) -> None:
        """Put the seams in and start to look."""
        fetch = self.host.seam(FetchSeam)
        if fetch is not None:
            fetch.in_worker = self._watch_worker
        self.host.install()
        self.last_lines.note_exit()
        self.sampler.start()
        # A training in a fork is not measured, and is not to end with measuring.
        os.register_at_fork(after_in_child=self.host.listeners.clear)
        atexit.register(self.finish)
        self.loading_ns = time.perf_counter_ns() - self.spec["import_began_ns"]

    def _look_here(self) -> None:
        self.sampler.target = threading.get_ident()

    def _watch_worker(self) -> None:
        dump = self.session / WORKER.format(loader=self.host.making, pid=os.getpid())
        Sampler(threading.get_ident(), lambda: "input", dump).start()

    def pause_sampler(self, paused: bool) -> None:
        """Stop or go on looking."""
        self.sampler.paused = paused

    def worker_pids(self) -> list[int]:
        """Processes that make batches now."""
        loader = self.host.seam(LoaderSeam)
        assert loader is not None
        found: list[int] = []
        for record in list(loader.records.values()):
            if record.trains:
                found += worker_pids(record.own)
                for runner in record.runners.values():
                    found += runner.pids()
        return found

    def queued(self) -> int | None:
        """Batches that are made for the training and were not drawn yet; None: no more are made."""
        loader, found = self.host.seam(LoaderSeam), training_loader(self.host)
        assert loader is not None
        return 0 if found is None else loader.feeding.queued(found[1])

    def evidence(self) -> Evidence:
        """Evidence by now."""
        found = collect(
            self.host,
            self.watcher,
            self.sampler,
            self.machine,
            self.contests,
            self.found,
            session=self.session,
            finished=self.finished,
            loading_s=self.loading_ns / 1e9,
        )
        names = {"from_step", "before_s", "mixes"} & self.spec.keys()
        run = msgspec.structs.replace(found.run, **{name: self.spec[name] for name in names})
        return msgspec.structs.replace(
            found, run=run, cache_limits=self.cache_limits, world=world()
        )

    def tell(
        self,
        phase: str,
        done: float,
        total: float,
        note: str = "",
        contest: Contest | None = None,
    ) -> None:
        """Tell the parent how far we are, and what a contest has found by now."""
        now = time.monotonic()
        if now - self.last_progress > PROGRESS_EVERY_S:
            self.last_progress = now
            found = {arm: contest.gain(arm) for arm in contest.pairs} if contest else {}
            gains = {arm: (gain.speedup, gain.low, gain.high) for arm, gain in found.items()}
            tell(self.session, phase=phase, done=done, total=total, note=note, gains=gains)

    def finish(self) -> None:
        """The target came to its end, or an error of its own did: write the evidence down."""
        if self.ended or self.stopped or os.getpid() != self.pid:
            return  # Of what a rank does after all was measured nothing was seen.
        self.ended = True
        within = self.last_lines.within(self.watcher.course.outermost)
        uncaught = getattr(sys, "last_value", None) is not None
        self.finished = not uncaught or within is False
        self.over = self._has_all_steps() if within is None else not within
        if not self.host.steps:
            self.found.notes += unwatched(self.host)
        try:
            self._write_down()
        finally:
            wake_all()  # workers of an arm that was at work rest since: python waits for their end

    def _has_all_steps(self) -> bool:
        total = self.watcher.total_steps(self.host.micro_steps)
        return total is not None and self.host.steps >= total

    def until_another(self) -> None:
        """Have it end where the script begins another training, which is not to be mixed with this one."""
        if self.spec.get("mixes") or several_ranks():
            return

        def turn(another: Another) -> None:
            before = int(self.spec.get("from_step", 0))  # the host counts from there
            self.another = another._replace(after=before + another.after)
            self.stop()

        trainings = Trainings(self.host, turn)
        self.host.listeners.append(lambda _: trainings.note())

    def safely(self, measure: Callable[[Step], None], step: Step) -> None:
        """Measure; where that fails it is over, and so is this process: nobody waits for its training."""
        try:
            measure(step)
        except Exception as error:
            if self.spec.get("debug"):
                raise
            self.found.notes.append(f"measuring broke off: {error!r}")
            self.stop()

    def _write_down(self) -> None:
        self.sampler.end()
        if not self.host.steps and has_steps(self.session):
            return
        # What an arm has set, of threads or the optimizer, is not the target's.
        self.host.guard("backend", self.host.switch, AS_IS)
        try:
            for action in self.before_finish:
                action()
            write_text(self.session / EVIDENCE, to_json(self.evidence()) + "\n")
            write(
                self.session / STATUS,
                {
                    "finished": self.finished,
                    "stopped": self.stopped,
                    "over": self.over,
                    "changed": self.host.changed,
                    "steps": self.host.steps,
                    "together": several_ranks(),
                    "another": self.another and self.another._asdict(),
                },
            )
        except Exception as error:
            if self.spec.get("debug"):
                raise
            on_stderr(f"outpace: evidence could not be written: {error!r}")
            with contextlib.suppress(OSError):
                write(self.session / STATUS, {"broken": repr(error)})

    def stop(self) -> None:
        """All is measured: write it down and end this process, whose results are thrown away."""
        self.stopped = True
        self.host.remove()
        self._write_down()
        if several_ranks():
            return  # All ranks have to end together: the parent sees to it.
        loader = self.host.seam(LoaderSeam)
        if loader is not None:
            self.host.guard("loader", loader.close)
        end_process(in_command=self.spec.get("command", False))


def begin(spec: dict[str, Any]) -> None:
    """Only watch the target that is about to run in this process, to its own end."""
    Observed(spec, switching=False).begin()

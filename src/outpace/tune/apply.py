"""A recipe at work in the target's process: for `run`, for the proof, and for timing new processes.

With ``stop_after`` steps the process ends there, its results thrown away; losses and step times are
then written down.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import zlib
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec
import torch

from outpace.measure.arms import settled
from outpace.measure.losses import Losses
from outpace.measure.stops import Stops
from outpace.measure.user_modules import user_modules
from outpace.plan.countdown import Countdown, began_here
from outpace.plan.first_reads import FirstReads
from outpace.plan.landing import Landing
from outpace.plan.process_end import seconds_to_end
from outpace.records.plan import Progress
from outpace.remedies.catalog import setup_of
from outpace.seams.host import Host, Step, on_stderr
from outpace.seams.rate import RateSeam
from outpace.seams.seeding import SeedingSeam
from outpace.seams.setup import AS_IS, Setup
from outpace.serve.samples import tensor_bytes
from outpace.tune.assemble import assemble, once_more, within_memory
from outpace.tune.ending import end_process
from outpace.tune.files import CHECKPOINT, LOSSES, STATUS, WARM_UP, has_steps, tell, write

MEASURING = {"loader", "module", "loss", "optimizer", "decode", "backend", "seeding"}
COUNTING = {"loss", "optimizer", "backend", "seeding"}
KEEP_TIMES = 20000
REPORTS = re.compile(r"\boutpace\.log\s*\(|from outpace import .*\blog\b")
MOST_BYTES = 4 << 30
"""of weights and buffers that are compared"""


class Applied:
    """What this process notes while a recipe is at work."""

    def __init__(self, spec: dict[str, Any], host: Host) -> None:
        self.spec = spec
        self.host = host
        self.from_step = int(spec.get("from_step", 0))
        """steps of optimizers before those that are noted"""
        self.steps_before = 0
        self.began_ns: int | None = None
        self.losses = Losses()
        self.times: list[tuple[int, int]] = []
        self.pid = os.getpid()
        host.listeners.append(self.on_step)
        if measures(spec):
            host.most_in_group = 1
        if spec.get("losses"):
            host.on_loss = self.on_loss

    def on_loss(self, samples: int, loss: torch.Tensor) -> None:
        """Keep a step's loss."""
        if self.is_there():
            self.losses.add(samples, loss)

    def is_there(self) -> bool:
        """Whether the training that is noted has begun."""
        return not self.from_step or self.host.stepped > self.from_step

    def on_step(self, step: Step) -> None:
        """A step ended."""
        if not self.is_there():
            self.steps_before, self.began_ns = self.host.steps, perf_counter_ns()
            return
        counts = step.clean or self.spec.get("every_step", False)
        if counts and len(self.times) < KEEP_TIMES:
            self.times.append((step.wall, step.cpu))
            if len(self.times) == WARM_UP and measures(self.spec):
                settled(
                    *self.host.roots
                )  # what was only launched by now is of the steps that do not count
        stop = self.spec.get("stop_after")
        limit = self.spec.get("stop_after_s")
        began = self.began_ns or self.host.first_step_start
        over = (
            limit is not None
            and began is not None
            and (perf_counter_ns() - began > float(limit) * 1e9)
        )
        steps = self.host.steps - self.steps_before
        if (stop is not None and steps >= int(stop)) or over:
            if self.times:
                wall, cpu = self.times[-1]
                self.times[-1] = wall + round(1e9 * settled(*self.host.roots)), cpu
            try:
                self.finish(ended=False)
            finally:
                end_process(in_command=self.spec.get("command", False))

    def finish(self, *, ended: bool = True) -> None:
        """Write down what was noted."""
        if os.getpid() != self.pid or self.spec.get("session") is None:
            return
        session = Path(self.spec["session"])
        if measures(self.spec) and not self.host.steps and has_steps(session):
            return
        samples, values = self.losses.read()
        try:
            write(
                session / LOSSES,
                {
                    "samples": samples,
                    "values": values,
                    "metrics": reported(),
                    "awaited": reports(),
                    "state": None if ended else checksum(self.host),
                    "seconds": [wall / 1e9 for wall, _ in self.times],
                    "cpu_seconds": [cpu / 1e9 for _, cpu in self.times],
                },
            )
            write(
                session / STATUS,
                {
                    "finished": ended,
                    "stopped": not ended,
                    "steps": self.host.steps,
                    "wall_s": (perf_counter_ns() - self.host.started) / 1e9,
                    "broken": self.host.broken,
                },
            )
        except OSError as error:
            on_stderr(f"outpace: the session could not be written: {error}")


def checksum(host: Host) -> int | None:
    """Of the weights and buffers of all models that were called; None where they are too much, sparse, or
    shards.
    """
    tensors = [
        tensor.detach()
        for module in list(host.roots)
        for tensor in (*module.parameters(), *module.buffers())
    ]
    plain = (torch.Tensor, torch.nn.Parameter)
    whole = all(type(t) in plain and t.layout is torch.strided and not t.is_meta for t in tensors)
    if not whole or sum(tensor.nbytes for tensor in tensors) > MOST_BYTES:
        return None
    found = 0
    for tensor in tensors:
        data: Any = tensor_bytes(tensor)[1]
        found = zlib.crc32(data, found)
    return found


def reported() -> dict[str, float]:
    """Metrics that the script gave to ``outpace.log``, if it did."""
    module = sys.modules.get("outpace.in_code")
    return module.logged() if module is not None else {}


def reports() -> bool:
    """Whether the script, or a module of its own, gives metrics to ``outpace.log`` at some time."""
    return any(REPORTS.search("".join(lines)) for lines in user_modules())


def measures(spec: dict[str, Any]) -> bool:
    """Whether losses and the time of each step are wanted, or only the recipe's effect."""
    return any(spec.get(name) is not None for name in ("stop_after", "stop_after_s", "losses"))


def served_by(setup: Setup) -> set[str]:
    """The seams, besides those that count steps, through which ``setup`` comes about."""
    wanted = set()
    if setup.feed != AS_IS.feed:
        wanted.add("loader")
    if setup.autocast or setup.channels_last or setup.compiled or setup.checkpointed:
        # The loader tells a model inside of a data set from the one that learns.
        wanted |= {"module", "loader"}
    if setup.kept_activations:
        wanted.add("recompute")
    if setup.no_unused_gradients:
        wanted |= {"unused", "module", "loader"}
    if setup.decodes:
        wanted.add("decode")
    if setup.scaled:
        wanted.add("loader")  # which tells what is the training's
    return wanted


def watch_deadline(host: Host, spec: dict[str, Any]) -> None:
    """Forecast the end, and land where that is asked."""
    given = spec["deadline"]
    session = Path(spec["session"])
    # Announced to all alike: some launchers tell the number of ranks to those alone that they start.
    ranks = int(os.environ["WORLD_SIZE"]) if os.environ.keys() >= {"WORLD_SIZE", "RANK"} else 1
    first = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"
    if ranks > 1:
        host.most_in_group = 1  # they count the same steps, one by one

    def told(progress: Progress) -> None:
        if first:
            tell(session, **msgspec.to_builtins(progress))

    if given["land"] is not None:
        # The rate is the script's own again before whatever else follows a step.
        host.seams = {"rate": RateSeam(), **host.seams}
    host.rests = False
    # A launcher may have brought this process to another machine than its parent's.
    began = began_here(given["began"], given["boot"], given["began_at"])
    landing = Landing(
        host,
        Countdown(began, seconds=given["seconds"], at=given["at"]),
        land=given["land"],
        checkpoint=session / CHECKPOINT,
        tell=told,
        say=say if first else silent,
        ranks=ranks,
        stood_still=Stops().take,
        first_reads=FirstReads().take,
        to_end=seconds_to_end,
    )

    def file_of_its_own() -> None:
        landing.checkpoint = session / f"{landing.checkpoint.stem}-{os.getpid()}.pt"

    os.register_at_fork(after_in_child=file_of_its_own)


def say(message: str, hint: str | None = None) -> None:
    """Something that the user should read while the script runs."""
    lines = [f"outpace: {message}", *([f"hint: {hint}"] if hint else [])]
    on_stderr("\n".join(lines))


def silent(message: str, hint: str | None = None) -> None:
    """The first rank says it."""


def begin(spec: dict[str, Any]) -> None:
    """Apply a recipe to the target that is about to run in this process."""
    setup = within_memory(setup_of([(r["name"], r["settings"]) for r in spec.get("remedies", [])]))
    shift = int(spec.get("seed_shift", 0))
    host = assemble(started_ns=spec.get("started_ns"), seed_shift=shift)
    wanted = (MEASURING if measures(spec) else COUNTING) | served_by(setup)
    if setup.feed.pin:
        wanted = wanted | {"transfer"}
    if spec.get("deadline") is not None:
        wanted = wanted | {"loader"}
    for name in host.seams.keys() - wanted:
        del host.seams[name]
    if not shift and not spec.get("seed_unseeded"):
        del host.seams["seeding"]
    applied = Applied(spec, host)
    if spec.get("deadline") is not None:
        watch_deadline(host, spec)
    host.install()
    seeding = host.seam(SeedingSeam)
    if seeding is not None and spec.get("seed_unseeded"):
        seeding.seed_unseeded(1_000_003 + shift)
    if setup != AS_IS:
        host.switch(setup)
    if setup.tf32:
        once_more(host, setup)
    atexit.register(applied.finish)

"""The memory and the arithmetic of a training's step, measured in its process: for `plan --memory`.

After a few steps as they are one is counted, and some are followed: the script's own, with another
batch size, in bfloat16, with its blocks checkpointed. Then the process ends; its results are thrown
away.
"""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from outpace.measure.allocator import AllocatorPeak
from outpace.measure.arms import settled
from outpace.measure.capacity import Limit, tightest
from outpace.measure.flops import StepCounter
from outpace.measure.memory import StepMemory
from outpace.measure.statistics import mean, median
from outpace.measure.subjects import main_device, training_loader
from outpace.records.files import write_json
from outpace.records.plan import Layer, Sizes, StepSize
from outpace.seams.alter import parts_of
from outpace.seams.hooks import Hook
from outpace.seams.host import Host, Step
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.tf32 import computed_in
from outpace.tune.assemble import assemble
from outpace.tune.ending import end_process
from outpace.tune.files import STATUS, STEP, has_steps, write
from outpace.tune.ranks import several_ranks

WATCHED = 8
"""steps that are timed"""
MOST_WATCHED = 64
"""where other things happen in nearly every step"""
SETTLED = 2
"""steps after a change, before one is followed"""
ROOMY = 4
"""times the memory of a step that must be there for one with twice the batch to be tried"""
MOST_SCALE = 16.0
"""times as large a batch as the script's is tried on a GPU at the most"""
OTHERS = 2 << 30
"""bytes of a GPU, contexts included, beyond which others are at work there"""
NEEDED = {"loader", "module", "loss", "optimizer", "backend"}


class Measuring:
    """The program of the process: one step after the other."""

    def __init__(
        self, host: Host, session: Path, *, in_command: bool = False, batch: int = 0
    ) -> None:
        self.host, self.session, self.in_command = host, session, in_command
        self.times: list[tuple[float, float]] = []
        self.steps: list[StepSize] = []
        self.other: dict[str, StepSize | None] = {}
        self.batch = batch
        """samples that are asked about; 0: the script's own"""
        self.layers: list[Layer] = []
        self.notes: list[str] = []
        self.flops = self.flops_forward = 0.0
        self.samples = 0
        """of the batches that are followed"""
        self.limit: int | None = None
        self.may_try = False
        self.dtype = "float32"
        self.pid = os.getpid()
        host.most_in_group = 1
        host.listeners.append(self.on_step)
        self.program = self.run()

    def on_step(self, step: Step) -> None:
        """A step ended; the next one follows the program."""
        if step.clean and len(self.times) < WATCHED:
            self.times.append((step.wall / 1e9, step.phases["forward"] / 1e9))
        try:
            over = next(self.program, True)
        except Exception as error:
            self.notes.append(f"not all could be measured: {error}")
            over = True
        if over:
            self.write(stopped=True)
            end_process(in_command=self.in_command)

    def run(self) -> Iterator[None]:
        """Steps as they are, a counted one, and those that are followed."""
        if main_device(self.host) != "cpu":
            yield from self.launched()
        while len(self.times) < WATCHED and self.host.steps < MOST_WATCHED:
            yield None
        queued_s = settled(*self.host.roots) / max(1, len(self.times))
        counter = StepCounter()
        with counter:
            yield None
        self.flops = float(counter.count.flops)
        self.flops_forward = float(counter.count.flops_forward)
        if main_device(self.host) != "cpu" and self.times:
            # The host only launches: on average a step takes until the device has done it.
            wall = mean(wall for wall, _ in self.times) + queued_s
            self.times = [(wall, wall * self.flops_forward / max(1.0, self.flops))]
        self.dtype = counter.count.half or computed_in(main_device(self.host))
        loader = training_loader(self.host)
        recent = loader[1].recent if loader is not None else None
        base = replace(AS_IS, free_input=bool(recent))
        self.samples = recent.only_the_fullest() if recent else self.host.batch_size
        if not self.samples:
            self.notes.append("how many samples a step has could not be found: it is taken for one")
        yield from self.follow(base, 1.0, "steps")
        if self.steps:
            own, limit = self.steps[0], tightest(main_device(self.host))
            roomy = ROOMY * own.peak < limit.bytes - limit.used
            self.limit = limit.bytes - limit.used + own.entry + own.data
            if recent and recent.scalable and (roomy or self.samples > 1):
                yield from self.follow(base, self.other_scale(roomy, limit), "steps")
        yield from self.follow(replace(base, autocast="bfloat16"), 1.0, "bf16")
        yield from self.follow(replace(base, checkpointed=True), 1.0, "checkpointed")
        self.may_try = bool(recent and recent.scalable and own_gpu(main_device(self.host)))

    def launched(self) -> Iterator[None]:
        """Steps until kernels are chosen and memory is taken; from here on the clock counts."""
        for _ in range(SETTLED):
            yield None
        settled(*self.host.roots)
        self.times.clear()

    def other_scale(self, roomy: bool, limit: Limit) -> float:
        """Of the second size that is followed. A GPU's scratch memory is in no proportion to the batch: there
        the batch that is asked about, or the largest that surely fits.
        """
        if not roomy or main_device(self.host) == "cpu":
            return 2.0 if roomy else 0.5
        most = (limit.bytes - limit.used) / (2 * self.steps[0].peak)
        asked = self.batch / max(1, self.samples)
        return asked if 1.0 < asked <= most else min(MOST_SCALE, 2.0 ** math.floor(math.log2(most)))

    def follow(self, setup: Setup, scale: float, name: str) -> Iterator[None]:
        """Memory of a step under ``setup``, with a part of its batch."""
        host = self.host
        host.switch(replace(setup, batch_scale=scale))
        for _ in range(SETTLED):
            yield None
        rooted = host.main_root()
        root = rooted[0] if rooted else None
        models = [root] if root is not None else []
        models += [model for model in host.roots if model is not root]
        memory = StepMemory(models, list(host.optimizers))
        hooks = follow_layers(root, memory, self.layers) if name == "steps" and scale == 1 else []
        memory.__enter__()
        yield None
        memory.__exit__(None, None, None)
        for hook in hooks:
            hook.remove()
        with AllocatorPeak(main_device(self.host)) as allocator:
            yield None
            allocator.mark()
            yield None
        host.switch(AS_IS)
        if memory.failure is not None:
            self.notes.append(f"memory could not be followed: {memory.failure}")
            return
        kinds = memory.by_kind()
        # What no tensor shows is scratch memory of a kernel, of the part that took most. On a GPU the last
        # batch makes room for the next, which the allocator's count alone knows.
        unseen = (allocator.bytes or 0) - memory.peak_bytes
        unseen = max(0, unseen) if allocator.held is None else unseen
        learning, optimizer = memory.peaks["learning"], memory.peaks["other"]
        # On a GPU the allocator tells what else is there: data, and libraries' lasting workspaces.
        beside = None if allocator.held is None else max(0, allocator.held - memory.entry_bytes)
        size = StepSize(
            batch=max(1, round(scale * self.samples)),
            entry=memory.entry_bytes,
            learning=learning + (unseen if learning >= optimizer else 0),
            optimizer=optimizer + (unseen if learning < optimizer else 0),
            data=kinds.other if beside is None else beside,
            learnt=learnt(models),
            kinds=kinds,
            pieces=allocator.pieces,
        )
        if name == "steps":
            self.steps.append(size)
        else:
            self.other[name] = size

    def write(self, *, stopped: bool = False) -> None:
        """Write down what was measured, at the script's own end too."""
        if os.getpid() != self.pid or (not self.host.steps and has_steps(self.session)):
            return
        write_json(
            self.session / STEP,
            Sizes(
                device=main_device(self.host),
                steps=tuple(self.steps),
                bf16=self.other.get("bf16"),
                checkpointed=self.other.get("checkpointed"),
                layers=tuple(self.layers),
                flops=self.flops,
                flops_forward=self.flops_forward,
                step_s=median(wall for wall, _ in self.times) if self.times else 0.0,
                forward_s=median(forward for _, forward in self.times) if self.times else 0.0,
                limit=self.limit,
                micro_steps=self.host.micro_steps,
                dtype=self.dtype,
                may_try=self.may_try,
                notes=tuple(self.notes),
            ),
        )
        write(self.session / STATUS, {"stopped": stopped, "steps": self.host.steps})


def own_gpu(device: str) -> bool:
    """Whether a step may take all that a GPU has left, or all of this process's share of it: nobody else, and
    no other rank, is there to want it too.
    """
    if device != "cuda" or several_ranks():
        return False
    free, total = torch.cuda.mem_get_info()
    ours = torch.cuda.memory_reserved()
    return total - free - ours < OTHERS or tightest(device).bytes < free + ours


def learnt(models: Iterable[torch.nn.Module]) -> int:
    """Bytes of the weights that gradients are made for."""
    weights = {id(weight): weight for model in models for weight in model.parameters()}
    return sum(weight.nbytes for weight in weights.values() if weight.requires_grad)


def follow_layers(root: Any, memory: StepMemory, found: list[Layer]) -> list[Any]:
    """Hooks that note what each part of the model keeps; to be removed after the step."""
    held: dict[str, int] = {}
    hooks = []
    for name, part in parts_of(root):

        def before(_module: Any, _args: Any, name: str = name) -> None:
            held[name] = memory.above

        def after(_module: Any, _args: Any, _out: Any, name: str = name) -> None:
            found.append(Layer(name, memory.above - held.pop(name, memory.above)))

        hooks.append(part.register_forward_pre_hook(Hook(before)))
        hooks.append(part.register_forward_hook(Hook(after)))
    return hooks


def host_of(spec: dict[str, Any]) -> Host:
    """The seams that sizes are measured through; to be installed."""
    host = assemble(started_ns=spec.get("started_ns"), switching=True)
    for name in host.seams.keys() - NEEDED:
        del host.seams[name]
    return host


def begin(spec: dict[str, Any]) -> None:
    """Measure the target that is about to run in this process."""
    host, batch = host_of(spec), spec.get("batch") or 0
    in_command = spec.get("command", False)
    measuring = Measuring(host, Path(spec["session"]), in_command=in_command, batch=batch)
    host.install()
    atexit.register(measuring.write)

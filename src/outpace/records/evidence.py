"""Measured facts about one training: what the seams saw and what the arms measured.

Times are seconds, sizes bytes. Nothing here is an opinion: `outpace.diagnose` interprets it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from outpace.records.arm import Arm
from outpace.records.compute import Compute
from outpace.records.gain import Gain
from outpace.records.health import Health
from outpace.records.input import Input
from outpace.records.ledger import NOW_AND_THEN, ONCE, Row
from outpace.records.machine import Machine
from outpace.records.memory import Memory
from outpace.records.run import Run

MOST_A_PAGE_S = 4e-6
"""CPU seconds for a page of fresh memory, at most: what the system does beyond that is other work"""


class Steps(msgspec.Struct, frozen=True):
    """Steps as the script runs them: no arm is on."""

    count: int = 0
    median_s: float = 0.0
    mean_s: float = 0.0
    cpu_s: float = 0.0
    samples_per_s: float = 0.0
    batch_size: int = 0
    micro_steps: int = 1
    boundary: Literal["optimizer", "backward", "none"] = "none"
    mingled: bool = False
    """every step has a validation, a checkpoint or an epoch's start in it, and was measured with it"""


class Sync(msgspec.Struct, frozen=True):
    """Calls that make the host wait for the device or copy to it, a step."""

    name: str
    count: float
    seconds: float
    where: str | None = None


HALF, CLEARLY = ("bfloat16", "float16"), 1.25
"""precisions that are made for speed, and times as fast as that float32 is surely faster"""
BESIDE = 0.25
"""cores that others keep busy, from which on they matter"""
LITTLE_INPUT = 0.05
"""of a step, up to which its input does not matter for the rest"""


class Loss(msgspec.Struct, frozen=True):
    """Loss by samples seen, as the script ran."""

    samples: tuple[int, ...] = ()
    values: tuple[float | None, ...] = ()
    """None where the loss was not a number"""
    first_bad_step: int | None = None
    """of the first loss that was NaN or infinite"""
    validated: tuple[tuple[int, float], ...] = ()
    """of each validation: samples trained on by then, and mean loss"""


class Overhead(msgspec.Struct, frozen=True):
    """What watching costs: a step watched over a step not watched."""

    step_ratio: float
    cpu_ratio: float
    step_low: float = 0.0
    step_high: float = 0.0
    """95 % interval of ``step_ratio``"""


class Rank(msgspec.Struct, frozen=True):
    """One of several processes that train together; times are seconds a step."""

    rank: int
    step_s: float
    free: Gain
    """of a step without exchange: at this rank's own pace"""
    input_s: float
    """time that it waits for a batch"""
    input_where: str | None = None
    compute_where: str | None = None


class CacheLimits(msgspec.Struct, frozen=True):
    """What caches may take, in bytes, where the user said so."""

    ram_bytes: int | None = None
    disk_bytes: int | None = None

    def memory(self, most: int) -> int:
        """Bytes of memory, where no more than ``most`` are there."""
        return most if self.ram_bytes is None else min(most, self.ram_bytes)


class Evidence(msgspec.Struct, frozen=True):
    """Everything measured in one session."""

    machine: Machine
    run: Run = Run()
    steps: Steps = Steps()
    ledger: tuple[Row, ...] = ()
    input: Input = Input()
    compute: Compute = Compute()
    syncs: tuple[Sync, ...] = ()
    """calls that make the host wait for the device, the dearest first"""
    transfers: tuple[Sync, ...] = ()
    """calls that copy to the device"""
    memory: Memory = Memory()
    cache_limits: CacheLimits = CacheLimits()
    arms: tuple[Arm, ...] = ()
    loss: Loss = Loss()
    health: Health = Health()
    overhead: Overhead | None = None
    world: int = 1
    """processes that train together; all but ``ranks`` is of the first"""
    ranks: tuple[Rank, ...] = ()
    """what each of several gives, where all could be compared"""
    notes: tuple[str, ...] = ()
    """what could not be measured, and why"""

    def arm(self, name: str) -> Arm | None:
        """The arm called ``name`` where it was measured to its end."""
        return next((a for a in self.arms if a.name == name and a.failed is None), None)

    @property
    def samples_a_step(self) -> int:
        """Of all ranks; 0 where they are not known."""
        return self.steps.batch_size * self.steps.micro_steps * self.world

    @property
    def experimented(self) -> bool:
        """Whether anything could be left out of some steps, to time them without it."""
        return any(arm.failed is None for arm in self.arms)

    @property
    def slowed_by_half(self) -> tuple[float, float, float] | None:
        """Seconds that a step would be shorter by with its products in float32, at the least and at the most;
        None where that is no faster here.

        By the machine's own speed in either. In float32 products reach a third of it, or a tenth to all.
        """
        rates, compute = self.machine.products, self.compute
        own, full = rates.get(compute.products or "", 0.0), rates.get("float32", 0.0)
        counted = compute.counted_s
        if compute.products not in HALF or not own or full < CLEARLY * own or not counted:
            return None
        making = sum(each.seconds for each in compute.spent if each.flops)
        making *= min(1.0, compute.clocked_s / counted)
        least, usual, most = (max(0.0, making - n * compute.flops / full) for n in (10, 3, 1))
        return usual, least, most

    @property
    def all_kept_bytes(self) -> float | None:
        """Memory of a step with all activations kept that the script computes again, at the most.

        None where it was not measured, or nothing limits it.
        """
        memory, more = self.memory, self.compute.recomputed_bytes
        if not (memory.limit_bytes and memory.peak_bytes and more):
            return None
        return memory.beside_bytes + memory.peak_bytes + more

    @property
    def starting_s(self) -> float:
        """Seconds a step that workers take to start with each epoch, which no step's own time has in it."""
        data, steps = self.input, self.steps_of_epoch
        return data.epoch_start_s / steps if data.workers and not data.restarts and steps else 0.0

    @property
    def steps_of_epoch(self) -> float:
        """Steps of an epoch: as many as those had that were over, which may be left early, or in all batches
        of the loader; 0 where that is not known.
        """
        if self.run.epoch_steps:
            return self.run.epoch_steps
        return (self.input.batches or 0) / max(1, self.steps.micro_steps)

    @property
    def passes(self) -> float:
        """How often a sample is met in the run: its epochs, and less where these are left early, or draw but
        some of the samples; once at the least.
        """
        data = self.input
        drawn = self.steps_of_epoch * max(1, self.steps.micro_steps) * data.batch_size
        share = min(1.0, drawn / data.samples) if data.samples and drawn else 1.0
        return max(1.0, share * data.likely_epochs)

    @property
    def begun_s(self) -> float:
        """Seconds of a step in which iterators are made, one for each batch, in the training's process."""
        data = self.input
        if data.workers or not data.restarts:
            return 0.0
        return max(0.0, data.wait_s - max(1, self.steps.micro_steps) * data.fetch_s)

    @property
    def makes_batches(self) -> bool:
        """Whether a loader's batches are made beside the steps, or for a good part of their time."""
        source = self.input
        takes = source.wait_s > LITTLE_INPUT * self.steps.mean_s
        return source.kind in ("loader", "iterable") and (source.workers > 0 or takes)

    def slowed_by_others(self, threads: int) -> bool:
        """Whether fewer ``threads`` than there are may have paid for other processes' sake alone.

        A thread whose core is taken holds up those that wait for it; more threads than cores do so
        by themselves.
        """
        now = self.compute.threads
        return self.run.others_cores >= BESIDE and threads < now <= self.machine.cores

    @property
    def may_be_held_up(self) -> bool:
        """Whether threads that compute may wait for one whose core another program holds."""
        return self.compute.device == "cpu" and self.slowed_by_others(1)

    @property
    def untouched(self) -> float:
        """Share of the parameters: rows of embeddings that a step looks up none of."""
        learnt = self.compute.learnt_bytes
        return min(1.0, self.compute.untouched_bytes / learnt) if learnt else 0.0

    @property
    def together(self) -> bool:
        """Whether several ranks train, which wait for each other."""
        return self.world > 1

    @property
    def free_s(self) -> float:
        """Seconds a step takes when its input is free."""
        free = self.arm("input_free")
        if free is not None:
            return min(free.seconds, self.steps.mean_s or free.seconds)
        return max(0.0, self.steps.mean_s - self.input.wait_s)

    @property
    def paging_s(self) -> float:
        """Seconds a step in which pages are filled, by as many threads as a step keeps busy."""
        if self.input.restarts and self.input.workers:
            return 0.0  # they are the workers' that start, and no other allocator saves those
        compute, steps = self.compute, self.steps
        busy = steps.cpu_s / steps.mean_s if steps.mean_s else 1.0
        spent = min(compute.system_s, compute.page_faults * MOST_A_PAGE_S)
        return spent / min(max(1.0, busy), max(1, compute.threads))

    def share(self, *names: str) -> float:
        """Share of the run's wall clock in ledger rows of these names."""
        return sum(row.share for row in self.ledger if row.name in names)

    @property
    def now_and_then(self) -> tuple[Row, ...]:
        """Rows of what comes between steps, and what a faster step leaves as it is."""
        if self.steps.mingled:
            return ()
        return tuple(row for row in self.ledger if row.name in NOW_AND_THEN)

    @property
    def now_and_then_s(self) -> float:
        """Seconds of these."""
        return sum(row.seconds for row in self.now_and_then)

    @property
    def whole_s(self) -> float:
        """Seconds of the run that the ledger is of."""
        return sum(row.seconds for row in self.ledger)

    @property
    def once_s(self) -> float:
        """Seconds of the ledger that are spent once, however long the training is."""
        return sum(row.seconds for row in self.ledger if row.name in ONCE)

    @property
    def in_steps_s(self) -> float:
        """Seconds of the ledger in steps that are alike: what makes a step faster makes these so."""
        run = self.run
        beside = self.once_s + self.now_and_then_s + run.starts_s + run.grown_s + run.told_s
        return self.whole_s - beside

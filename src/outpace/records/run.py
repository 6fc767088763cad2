"""The measured run: how long it took, and what comes in it now and then."""

from __future__ import annotations

import math

import msgspec

NEARLY = 1e-6
"""of the steps from one to the next, by which what comes now and then may be off"""


class Recurring(msgspec.Struct, frozen=True):
    """What comes now and then outside of steps: ``count`` times so far, of ``each_s`` seconds.

    ``first``: steps before it came first, and a part of one where it comes between two; ``every``: steps from
    one to the next, None: it comes no more.
    """

    name: str
    each_s: float
    count: int
    first: float
    every: float | None
    sure: bool = True
    """else it came but once, and may not come again"""
    leads: bool = False
    """it comes before the steps, as an epoch's start does: none follows the last of them"""
    longer_s: float = 0.0
    """that the first one took longer than the others"""
    over: float | None = None
    """steps from the first one on that it is spread over, as what the first epoch makes; None: it comes at
    once"""

    def times(self, steps: int) -> int:
        """How often it comes in a run of so many steps."""
        if self.every is None:
            return self.count
        later = steps - self.first + (0 if self.leads else 1)
        return max(0, math.ceil(later / self.every - NEARLY))

    def seconds(self, steps: int) -> float:
        """Of a run of so many steps."""
        times = self.times(steps)
        part = min(1.0, steps / self.over) if self.over else 1.0
        return part * (self.each_s * times + (self.longer_s if times else 0.0))

    @property
    def so_far_s(self) -> float:
        """Seconds of those that came."""
        return self.each_s * self.count + self.longer_s


class Run(msgspec.Struct, frozen=True):
    """The measured run itself."""

    wall_s: float = 0.0
    startup_s: float = 0.0
    finished: bool = False
    """the script came to its own end while it was measured"""
    total_steps: int | None = None
    """steps of the whole run where its length could be found"""
    estimated_s: float | None = None
    loading_s: float = 0.0
    """part of start-up in which torch was imported, or imported more of itself: no training is
    without it"""
    epoch_steps: float | None = None
    """steps of an epoch, as those had that were over; None where none was"""
    validation_s: float | None = None
    """time of a validation on the loaders that nothing was drawn from, predicted; None where one was
    seen, or there is no such loader"""
    validations: int | None = None
    """that the run has, as far as one can see; None where none came between steps"""
    leaves: tuple[str, ...] = ()
    """``file:line`` of conditions by which the loop around the training may end sooner"""
    recurring: tuple[Recurring, ...] = ()
    """what came outside of steps; empty where the run was seen to its end"""
    starts_s: float = 0.0
    """of the ledger's row for input, what epochs' starts took: making an iterator, starting workers, and
    what the first step computes longer for them"""
    from_step: int = 0
    """steps of all optimizers, of an earlier training of the script, before it was watched"""
    before_s: float = 0.0
    """time of all that came before it was watched"""
    mixes: bool = False
    """it is several trainings that take turns, taken for one"""
    slope_s: float = 0.0
    """that each step takes longer than the one before it in what no seam explains; 0: it is not sure"""
    grown_s: float = 0.0
    """of the ledger, what steps take longer than those that were looked at, as each takes longer than the one
    before it in what no seam explains"""
    told_s: float = 0.0
    """of the ledger's logging, what comes with validations and not with steps"""
    others_cores: float = 0.0
    """cores that other processes kept busy meanwhile, on average"""

    @property
    def to_first_step_s(self) -> float:
        """From the process's begin to the first step that was watched."""
        return self.before_s + self.startup_s

    @property
    def trained_s(self) -> float:
        """Since the first step."""
        return max(0.0, self.wall_s - self.startup_s)

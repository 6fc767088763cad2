"""The seams of one process, together: put in, taken out, and brought to a Setup.

The host counts steps. Very short ones are noted in groups, and but one group in a few is looked
into, so that watching them costs little.

A step ends where the first optimizer that was stepped ends its step, or, once that rests, another;
a script that updates its weights by hand, or within the backward pass, has steps from backward to backward.

Whatever fails inside a seam of ours is told once on stderr, the seam is taken out, and the target
goes on as if nothing had been there.
"""

from __future__ import annotations

import contextlib
import random
import sys
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from threading import enumerate as enumerate_threads
from threading import get_ident
from time import perf_counter_ns, process_time_ns
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from outpace.seams.compiled import graphs_compiled
from outpace.seams.drawn import Drawn
from outpace.seams.held import held_by
from outpace.seams.phases import Phases
from outpace.seams.root import RootFacts
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.told import Told
from outpace.seams.where import Place

if TYPE_CHECKING:
    import torch
from torch.utils.weak import WeakIdKeyDictionary

GROUP_NS = 10_000_000
"""steps are noted in groups of about this length, once they are known to be shorter"""
MOST_IN_GROUP = 32
GROUP_AFTER = 20
AWAKE = 8
"""groups that are looked into after something other than a step was met"""
REST = (2, 3, 4)
"""groups that go by between two that are looked into; by chance, so as not to beat with the script"""
MIXED_AFTER = 16
"""groups in a row with something other than training in them after which smaller ones are tried, or
single steps are taken as they are"""
TAKES_OVER_AFTER = 8
"""steps of one optimizer after which it takes the place of another that makes none any more"""
HAND_WRITTEN_AFTER = 8
"""backward passes without any optimizer after which steps are taken to go from backward to backward"""
ACCUMULATED = 64
"""the same where the script has made one: it may step only after so many"""


MOST_PENDING = 4096
"""losses that are kept for a step: backward passes of a script that steps no more are none of it"""


class Seam(Protocol):
    """A place where torch is touched."""

    name: str

    def install(self) -> None:
        """Put the seam in; a second call changes nothing."""

    def remove(self) -> None:
        """Take it out, leaving torch as it was found."""

    def reconcile(self, setup: Setup) -> None:
        """Run the next step as ``setup`` says."""


S = TypeVar("S", bound=Seam)


@dataclass(slots=True)
class Step:
    """One step as it ran, or the mean of ``count`` short ones; nanoseconds.

    ``clean``: nothing but training happened in it, or what happens in every step.
    """

    index: int
    wall: int
    cpu: int
    phases: dict[str, int]
    micro_steps: int
    samples: int
    clean: bool
    count: int = 1


@dataclass
class Host:
    """The seams, the objects of the target that they have met, and who listens."""

    started: int = field(default_factory=perf_counter_ns)
    """perf_counter_ns at the launch of the process"""
    phases: Phases = field(default_factory=Phases)
    setup: Setup = AS_IS
    changed: bool = False
    """steps have run in another way than the script's own"""
    seams: dict[str, Seam] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    """what of a Setup the script turned out not to bear, and why: it is left out from there on"""
    listeners: list[Callable[[Step], None]] = field(default_factory=list)
    boundary: Literal["optimizer", "backward", "none"] = "none"
    steps: int = 0
    samples: int = 0
    on_loss: Callable[[int, torch.Tensor], None] | None = None
    """told of samples seen and of a step's loss, which is not read yet"""
    on_backward: Callable[[torch.Tensor], None] | None = None
    """told of each loss at once, while the weights are those that made it"""
    on_move: list[Callable[[], None]] = field(default_factory=list)
    """told when another thread, the calling one, is found to be the one that trains"""
    on_validation: Callable[[bool, bool], None] | None = None
    """told when the script begins to validate, and when it goes on training; and whether it then turns out
    that a batch of the training's was judged"""
    on_learning: Callable[[], None] | None = None
    """told when a backward pass shows that what was taken for a validation was none"""
    on_taught: Callable[[], None] | None = None
    """told of each backward pass"""
    first_step_start: int | None = None
    roots: MutableMapping[torch.nn.Module, RootFacts] = field(default_factory=WeakIdKeyDictionary)
    """by who they are: a metric of torchmetrics' is another key after each call"""
    optimizers: weakref.WeakSet[torch.optim.Optimizer] = field(default_factory=weakref.WeakSet)
    """those that were stepped"""
    made: weakref.WeakKeyDictionary[torch.optim.Optimizer, Place] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    """those that were made, of which some may be stepped later, and where"""
    on_takeover: Callable[[Any, int], None] | None = None
    """told of an optimizer that takes the place of the main one, before it does, and of the steps of all
    before its own"""
    stepped: int = 0
    """steps of all optimizers"""
    by_hand_after: int = HAND_WRITTEN_AFTER
    """backward passes without a step of an optimizer after which weights are taken to be stepped by hand"""
    main_optimizer: Callable[[], Any] = field(default_factory=lambda: lambda: None)
    stepped_since: dict[int, list[int]] = field(default_factory=dict)
    """which steps were of each other optimizer, by its id, since the last one of the main one"""
    batch_size: int = 0
    pending: list[torch.Tensor] = field(default_factory=list)
    backwards: int = 0
    backwards_elsewhere: int = 0
    """those of other threads, before the first step"""
    backwards_in_step: int = 0
    begun: tuple[int, dict[str, int]] = (0, {})
    """how many backward passes there were, and the phases' totals, when loaders began that nothing was learnt
    from since"""
    unstepped: bool = False
    """no optimizer stepped since the last backward pass"""
    micro_steps: int = 1
    """batches that a step is made of"""
    epoch: int = 0
    mode: Literal["startup", "train", "validation"] = "startup"
    installed: bool = False
    graphs: int = 0
    """that torch.compile has compiled"""
    in_group: int = 0
    group: int = 1
    """steps that are noted together"""
    most_in_group: int = MOST_IN_GROUP
    mingled: bool = False
    """something other than training is in every step, as where an epoch is one batch: it belongs to it"""
    experiments: bool = False
    """arms alternate inside of an epoch"""
    rests: bool = False
    """look into a sample of very short steps, instead of all"""
    making: int = 0
    """number of the DataLoader whose iterator was made last"""
    told: Told = field(default_factory=Told)
    drawn: Drawn = field(default_factory=Drawn)
    pinned: set[int] = field(default_factory=set)
    """addresses of the batch that a feed gave last in page-locked memory"""
    fed: bool = False
    """a loader feeds the training"""
    mistaken: bool = False
    """what was taken for validations by now were calls that belong to the steps"""
    judging: set[CodeType] = field(default_factory=set)
    """functions of the user's that ran where a loader began an epoch that was not the training's"""
    dirty: bool = False
    """something other than training happened in the running step, an epoch's start for one"""

    _wall: int = 0
    _cpu: int = 0
    _outside: dict[str, int] = field(default_factory=dict)
    _rest: int = 0
    _mixed: int = 0
    """groups in a row that were looked into and had something other than training in them"""
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    # --- putting in and taking out -------------------------------------------------------------

    def add(self, seam: Seam) -> None:
        """Have a seam among those that are put in."""
        self.seams[seam.name] = seam

    def seam(self, kind: type[S]) -> S | None:
        """The seam of a kind; None where it is left out."""
        found = self.seams.get(kind.name)
        return found if isinstance(found, kind) else None

    def install(self) -> None:
        """Put all seams in that have not failed."""
        for name, seam in self.seams.items():
            if name not in self.broken:
                self.guard(name, seam.install)
        self.installed = True

    def remove(self, keep: tuple[str, ...] = ()) -> None:
        """Take the seams out."""
        for name, seam in reversed(self.seams.items()):
            if name not in keep:
                self.guard(name, seam.remove)
        self.installed = False

    def guard(self, name: str, action: Callable[..., Any], *args: Any) -> Any:
        """Do something of ours; if it fails, say so, take its seam out and go on."""
        try:
            return action(*args)
        except Exception as error:
            self.fail(name, error)
            return None

    def fail(self, name: str, error: BaseException) -> None:
        """A seam failed: tell it once and take it out."""
        if name in self.broken:
            return
        self.broken[name] = f"{type(error).__name__}: {error}"
        on_stderr(
            f"outpace: the {name} seam failed ({self.broken[name]}); it is taken out and the "
            "target goes on"
        )
        if name == "optimizer" and self.boundary == "optimizer":
            # Steps are to end all the same: an experiment waits for them.
            self.boundary = "backward"
        seam = self.seams.get(name)
        if seam is not None:
            try:
                seam.remove()
            except Exception as second:
                on_stderr(f"outpace: and could not be taken out: {second}")

    def switch(self, setup: Setup) -> None:
        """Run the steps from here on as ``setup`` says."""
        if setup == self.setup:
            return
        self.changed = self.changed or replace(setup, watched=True) != AS_IS
        if (setup.feed, setup.free_input) != (self.setup.feed, self.setup.free_input):
            self.group = 1  # steps may be many times as long from here on
        if setup.watched != self.setup.watched:
            if setup.watched:
                self.install()
            else:
                ends = "loss" if self.boundary == "backward" else "optimizer"
                self.remove(keep=(ends, "loader"))
        self.setup = setup
        for name, seam in self.seams.items():
            if name not in self.broken:
                self.guard(name, seam.reconcile, setup)

    # --- what the seams report -----------------------------------------------------------------

    def main_root(self) -> tuple[torch.nn.Module, RootFacts] | None:
        """The model: of the modules the script calls to learn, the one with most parameters that learn.

        Of several as large the newest: a copy for each task, or a fold's. One that no step has learnt from
        yet is another training's, which begins; and one that no optimizer has, beside others that one has,
        judges these, as a network whose features are compared.
        """
        pairs = [(m, f) for m, f in self.roots.items() if f.has_parameters and f.training_calls]
        pairs = [pair for pair in pairs if pair[1].since < self.steps] or pairs
        if len(pairs) > 1:
            held = held_by(*self.optimizers)
            learns = [p for p in pairs if any(id(w) in held for w in p[0].parameters())]
            pairs = learns or pairs
        pairs.reverse()
        return max(pairs, key=lambda pair: sizes(pair[0]), default=None)

    def on_main_thread(self) -> bool:
        """Whether the calling thread is the one that trains."""
        return get_ident() == self.phases.owner

    def trains_here(self) -> bool:
        """Whether the calling thread, which steps an optimizer, is the one that trains.

        At first that is the one that has imported torch; another is, where that one has not learnt anything
        by then, as where it only waits for it, or has ended.
        """
        if self.on_main_thread():
            return True
        alive = any(each.ident == self.phases.owner for each in enumerate_threads())
        if alive and (self.steps or self.backwards or self.phases.stack):
            return False
        self.phases.unwind(0)
        self.phases.owner = get_ident()
        self.saw_no_step()
        self.dirty = True
        for each in self.on_move:
            self.guard("thread", each)
        return True

    def saw_validation(self) -> None:
        """The model was called without learning."""
        if self.mode != "startup":
            self.drawn.set_apart()  # a validation may draw from several loaders
        if self.mode == "train":
            self.mode = "validation"
            totals = self.phases.totals
            self.phases.idle, self.begun = "elsewhere", (0, {})
            for name in ("input", "transfer", "sync", "elsewhere"):
                totals["validation"] += totals[name]
                totals[name] = 0
            if self.on_validation is not None:
                self.guard("validation", self.on_validation, True, False)

    def saw_training(self, *, draws: bool = False) -> None:
        """Training goes on: a batch is drawn (``draws``) from its loader, or the model was called to learn.

        A script may judge by the training's batches too: then the next is drawn without a step between.
        """
        if self.mode == "startup":
            self._begin()
        elif self.mode == "validation":
            record = self.drawn.learnt_from
            if record is not None and record.trains and record.within:
                record.interrupted |= not (draws and record.begun == self.steps)
            if self.on_validation is not None:
                own = draws and self.training_batch_waits()
                self.guard("validation", self.on_validation, False, own)
            self._close_validation()
        self.mode = "train"

    def training_batch_waits(self) -> bool:
        """Whether the batch drawn last is one of the training's that was not learnt from yet."""
        record = self.drawn.last
        return record is not None and record.trains and record.drawn > self.backwards_in_step

    def saw_no_step(self) -> None:
        """A loader begins an epoch: if no step was made yet, what was drawn before belongs to start-up."""
        if self.mode == "train" and not self.steps and not self.backwards:
            self.mode, self.first_step_start = "startup", None

    def saw_epoch(self, *, trains: bool) -> None:
        """A loader begins an epoch: if it trains, what came since the last step followed an epoch.

        Calls of the model as if to learn, of which nothing was learnt, were a validation in training mode.
        """
        phases, (backwards, before) = self.phases, self.begun
        phases.idle = "elsewhere"
        if trains and self.first_step_start is not None and not self.mingled:
            totals = phases.totals
            if before and backwards == self.backwards and totals["forward"] > before["forward"]:
                for name in ("elsewhere", "input", "transfer", "sync", "forward"):
                    totals["validation"] += totals[name] - before[name]
                    totals[name] = before[name]
            if not self.in_group:
                totals["epoch_end"] += totals["elsewhere"]
                totals["elsewhere"] = 0
        if trains or backwards != self.backwards:
            self.begun = self.backwards, dict(phases.totals)

    def saw_backward(self, loss: torch.Tensor | None) -> None:
        """A backward pass ended."""
        self.backwards += 1
        self.backwards_in_step += 1
        self.unstepped = True
        if self.on_taught is not None:
            self.guard("module", self.on_taught)
        if self.mode == "validation" and self.on_learning is not None:
            self.guard("module", self.on_learning)
        if self.mode != "train":
            self.saw_training()
        if self.drawn.learn() is not None:
            self.fed = True
        if loss is not None and self.on_loss is not None and len(self.pending) < MOST_PENDING:
            self.pending.append(loss)
        if self.boundary == "backward":
            self.end_step()
        elif not self.optimizers and self.backwards >= self.by_hand_after:
            self.boundary = "backward"

    def saw_optimizer_step(self, optimizer: Any, *, within: bool = False) -> None:
        """An optimizer ended its step; ``within``: a backward pass, with which the training's step ends."""
        self.unstepped = False
        self.stepped += 1
        if self.main_optimizer() is not optimizer and not self._takes_over(optimizer):
            return
        self.boundary = "backward" if within else "optimizer"
        if self.stepped_since:
            self.stepped_since = {}
        if not within:
            self.end_step()

    def saw_no_optimizer_step(self) -> None:
        """No optimizer stepped after a backward pass: what is learnt of next begins with the next batches."""
        self.unstepped = False
        if self.boundary == "optimizer":
            self.pending, self.backwards_in_step, self.dirty = [], 0, True

    def _takes_over(self, optimizer: Any) -> bool:
        """Whether an optimizer is the main one from here on, as in a later part of a training."""
        steps = self.stepped_since.setdefault(id(optimizer), [])
        steps.append(self.stepped)
        rests = self.main_optimizer() is not None
        if rests and len(steps) < TAKES_OVER_AFTER:
            return False
        if self.steps and self.on_takeover is not None:
            self.guard("training", self.on_takeover, optimizer, steps[0] - 1)
        self.main_optimizer = weakref.ref(optimizer)
        if rests:
            self.dirty = True
            self.pending = []  # the losses of several steps
        return True

    def _begin(self) -> None:
        """The first step starts here; all before is start-up."""
        self.first_step_start = perf_counter_ns()
        self.phases.take()
        self._wall, self._cpu = self.first_step_start, process_time_ns()

    def wake(self) -> None:
        """Something other than steps begins: look into it from here on."""
        if self.phases.resting:
            self.phases.resting, self.dirty, self._rest = False, True, -AWAKE
            self.phases.take()

    def _close_validation(self) -> None:
        totals = self.phases.take()
        for name in ("input", "transfer", "sync", "elsewhere", "forward"):
            totals["validation"] += totals[name]
            totals[name] = 0
        for name, value in totals.items():
            self._outside[name] = self._outside.get(name, 0) + value

    def end_step(self) -> None:
        """A step ended here: tell it to those who listen, once a group is full."""
        self.steps += 1
        self.in_group += 1
        if not self.phases.resting:
            # Gradients may be had without a backward pass, as by torch.autograd.grad.
            if not self.backwards_in_step and self.drawn.learn() is not None:
                self.fed = True
            self.micro_steps = self._batches_of_step()
            self.drawn.step_ended()
        self.samples += self.batch_size * self.micro_steps
        if self.in_group < self.group and self.mode == "train":
            self.backwards_in_step = 0
            return
        totals = self.phases.take()
        now, cpu = self.phases.mark, process_time_ns()
        self.phases.idle = "elsewhere"
        for name, value in self._outside.items():
            totals[name] += value
        self._note_compiling(totals)
        now_and_then = ("validation", "checkpoint", "compiling")
        other = self.dirty or bool(self._outside or any(totals[name] for name in now_and_then))
        self._outside, self.dirty = {}, False
        if not self.phases.resting:
            self._note_mixed(other)
        clean = not (self.phases.resting or (other and not self.mingled))
        if self.first_step_start is None:
            self.first_step_start, self._wall, self._cpu = now, now, cpu
            clean = False
        # What is called from here on is ours: the seams are to look away.
        self.phases.stack.append("optimizer")
        self.guard("loss", self._record_loss)
        self._tell(self._step(now - self._wall, cpu - self._cpu, totals, clean))
        self.phases.stack.pop()
        self.backwards_in_step, self.in_group, self.mode = 0, 0, "train"
        self.phases.resting = self._next_rests()
        # What the listeners did between two steps is ours, not the target's.
        self._cpu = cpu
        self._wall = self.phases.mark = perf_counter_ns()

    def _note_compiling(self, totals: dict[str, int]) -> None:
        """Whether the script's model was compiled: for the first step, which is start-up, or once more, for
        other shapes.
        """
        before, self.graphs = self.graphs, graphs_compiled()
        if self.graphs > before and self.first_step_start is not None and self.setup == AS_IS:
            took = totals["forward"] + totals["backward"]
            totals["forward"] = totals["backward"] = 0
            if self.steps > 1:
                totals["compiling"] += took
            else:
                self.first_step_start += took

    def _note_mixed(self, other: bool) -> None:
        """Whether something other than training was in the group that ended."""
        self._mixed = self._mixed + 1 if other else 0
        # Other batches, and free ones, are of other epochs; unwatched, only starts of epochs are met.
        as_often = (
            self.setup.batch_scale == 1.0 and not self.setup.free_input and self.setup.watched
        )
        if not other:
            self.mingled = self.mingled and not as_often
        elif self._mixed >= MIXED_AFTER and self.group > 1:
            # An epoch has as many steps as a group, or fewer.
            self.most_in_group = self.group = self.group // 2
            self._mixed = 0
        elif self._mixed >= MIXED_AFTER:
            self.mingled = self.mingled or as_often

    def _batches_of_step(self) -> int:
        """Its backward passes, less those that go back through a batch once more."""
        passes, record = self.backwards_in_step, self.drawn.learnt_from
        if record is not None and record.drawn:
            # Fewer than passes, as of a GAN, whose two models learn from each batch.
            passes = min(passes, record.drawn)
        return max(1, passes)

    def _next_rests(self) -> bool:
        """Whether the next group goes by without a look into it."""
        if not self.rests or self.group == 1 or self.boundary != "optimizer":
            return False
        if self._rest < 0:
            self._rest += 1
            return False
        if self._rest == 0:
            self._rest = 1 + self._chance.choice(REST)
        self._rest -= 1
        return self._rest > 0

    def _step(self, wall: int, cpu: int, totals: dict[str, int], clean: bool) -> Step:
        """The group that ended, as one step; the next group's size follows from it."""
        count, micro = self.in_group, self.micro_steps
        if count > 1:
            wall, cpu = wall // count, cpu // count
            if clean:
                totals = {name: value // count for name, value in totals.items()}
        if clean and not self.mingled and self.steps > GROUP_AFTER:
            self.group = max(1, min(self.most_in_group, GROUP_NS // max(1, wall)))
        size = self.batch_size * micro
        return Step(self.steps - 1, wall, cpu, totals, micro, size, clean, count)

    def _tell(self, step: Step) -> None:
        for listener in list(self.listeners):
            try:
                listener(step)
            except Exception as error:
                self.fail("step", error)
                self.listeners.remove(listener)  # the others may have the target to end

    def _record_loss(self) -> None:
        pending, self.pending = self.pending, []
        if pending and self.on_loss is not None:
            total = pending[0] if len(pending) == 1 else sum(pending[1:], pending[0])
            self.on_loss(self.samples, total)


def on_stderr(message: str) -> None:
    """Say it, unless nobody takes it any more, or a disk is full: that is none of the training's business."""
    with contextlib.suppress(OSError, ValueError):
        print(message, file=sys.stderr, flush=True)


def sizes(module: torch.nn.Module) -> tuple[int, int]:
    """Numbers in the parameters of a module that learn, and in all: what is frozen only helps."""
    found = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return sum(count for count, learns in found if learns), sum(count for count, _ in found)

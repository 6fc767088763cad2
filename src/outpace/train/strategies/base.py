"""What a strategy is, and how several go together.

A strategy overrides the events that it needs; the loop calls only those. They are called in the order
in which the strategies were given, the user's callbacks last.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import torch

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.serve.order import Order, Repeated
from outpace.train.optimizers import times_the_rate

if TYPE_CHECKING:
    from outpace.train.run import Run

EVENTS = (
    "begin",
    "epoch_begin",
    "batch",
    "loss",
    "gradients",
    "step_end",
    "validated",
    "epoch_end",
    "end",
    "over",
)
FALLING = frozenset({"one_cycle", "restarts", "linear"})
"""whose rate ends at zero"""
WARM_UP = FALLING | {"schedule_free"}
"""whose rate rises at the begin"""
LAST = frozenset({"class_prior"})
"""which set a part of the first weights, after those that make all of them"""
RISING = 100
"""steps over which a larger rate is reached where it does not"""
Need = Literal["validation", "an end"]
HINTS: dict[Need, str] = {
    "validation": "give valid=, the data to validate on",
    "an end": "say how long: budget='30m', steps=5000, or epochs=10 where train= tells its batches",
}


class Strategy:
    """One idea about training. Subclasses are final: one file, one strategy.

    ``sets``: what it sets and no other may; ``clashes``: strategies that it cannot be used with, and
    why; ``needs``: what the training must have; ``whole``: why it cannot be used where weights are in
    shards. What it learns on the way is in `state_dict`, as tensors, numbers, strings and containers
    of them.
    """

    name: ClassVar[str]
    sets: tuple[str, ...] = ()
    clashes: ClassVar[Mapping[str, str]] = {}
    needs: tuple[Need, ...] = ()
    whole: str = ""
    raises_loss: ClassVar[bool] = False
    """it may make the training's loss larger, as by samples that are harder: that is no divergence"""

    @property
    def unfolds(self) -> float:
        """Share of the budget by which it has done all that it does to what is learnt: until then a
        validation says nothing of a stall.
        """
        return 0.0

    def prepare(self, run: Run) -> None:
        """Before all else, also where training is to go on, whose state is not loaded yet: how batches
        are drawn, which groups weights are in. No batch was drawn.
        """

    def first_weights(self, run: Run) -> None:
        """Training begins anew: the weights that it begins with, before any strategy's `begin`. They
        are to be the same on all ranks; data and generators are left as they are. Those in `LAST` are
        called after all others.
        """

    def first_batches(self, run: Run) -> None:
        """Training begins anew, its first weights are there: how large its steps are, for which they may
        be tried on a copy. Before any strategy's `begin`; when training ends is reckoned after it.
        """

    def begin(self, run: Run) -> None:
        """Training begins, or goes on (``run.resumed``)."""

    def epoch_begin(self, run: Run) -> None:
        """An epoch begins."""

    def batch(self, run: Run, batch: Any) -> Any:
        """A batch is about to be learnt from. What is returned is taken instead, unless it is None."""

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
        """The loss is there, before its backward pass. What is returned is taken instead."""

    def gradients(self, run: Run) -> None:
        """Gradients are there, the optimizer has not used them yet."""

    def step_end(self, run: Run) -> None:
        """A step is done; ``run.step`` counts it."""

    def validated(self, run: Run) -> None:
        """``run.history[-1]`` is what a validation gave."""

    def epoch_end(self, run: Run) -> None:
        """An epoch was finished; ``run.history[-1]`` is a validation of it, where there is something to
        validate on.
        """

    def end(self, run: Run) -> None:
        """Training has ended; ``run.stopped`` says why."""

    def over(self, run: Run) -> None:
        """Last of all, also where training, or what came before it, raised or was interrupted: put model
        and data back as they were. Those that come last are told first.
        """

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer | None:
        """The optimizer that suits it, for when the user gave none."""
        return None

    def validates(self, run: Run) -> torch.nn.Module | None:
        """The model to validate and to keep instead of the one that is trained."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """What it needs to go on."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; before `begin`."""

    @classmethod
    def page(cls) -> str:
        """The docstring: what, when it helps, when it harms, source."""
        return inspect.cleandoc(cls.__doc__ or "")


class Course(Strategy):
    """Abstract. ``rate``: the largest; None leaves it to the optimizer, or to who finds one."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.sets = ("the rate's course", *(("the largest rate",) if rate is not None else ()))

    def begin(self, run: Run) -> None:
        """Set the largest rate."""
        if self.rate is not None and not run.resumed:
            run.rates.set_peak(self.rate)


class Sizing(Strategy):
    """Abstract. Steps have other sizes than the user gave, and the largest rate goes with them.

    Where nothing in the rate's course warms up, a rate that became larger is reached over the first
    steps (Goyal et al. 2017, arXiv 1706.02677, section 2.2).
    """

    def __init__(self) -> None:
        self.times, self.rising = 1.0, 0
        """as large a rate; steps over which it is reached"""

    def prepare(self, run: Run) -> None:
        """The rate is as it began."""
        self.times, self.rising = 1.0, 0

    def scale_rate(self, run: Run, before: int, samples: int, noise: float) -> str:
        """For steps of so many samples; what was done, in words. Where lr_finder is to find a rate for them
        nothing is, unless it finds none.
        """
        names = {each.name for each in run.events.strategies}
        if samples == before:
            return ""
        self.times = times_the_rate(run.optimizer, before, samples, noise)
        if "lr_finder" in names:
            return ""
        if self.times > 1.0 and not names & WARM_UP:
            self.rising = int(min(RISING, 0.1 * run.steps_ahead))
        if not self.rising:
            run.rates.rescale(self.times)
        return f", the rate is {self.times:.2g} times as large"

    def step_end(self, run: Run) -> None:
        """The next step's rate, as long as it rises."""
        if run.step <= self.rising:
            run.rates.rescale(self.risen(run.step) / self.risen(run.step - 1))

    def risen(self, step: int) -> float:
        """How many times as large the rate is after so many steps."""
        return 1.0 + (self.times - 1.0) * step / self.rising

    def state_dict(self) -> dict[str, Any]:
        """How the rate rises."""
        return {"times": self.times, "rising": self.rising}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.times, self.rising = state["times"], state["rising"]


class Drawing(Strategy):
    """Abstract. Samples come in another order than the Loader's own, which it has again afterwards."""

    loader: Loader | None = None
    order: Order | Repeated | None = None
    """the Loader's own"""

    def loader_of(self, run: Run) -> Loader:
        """The Loader of a training, whose order is noted. Raises UsageError where there is none."""
        if not isinstance(run.train.source, Loader):
            raise UsageError(
                f"{self.name} draws samples, and train= gives ready batches",
                "give train= a data set or a tuple of tensors, and batch_size=",
            )
        self.loader = run.train.source
        self.order = self.loader.order
        return self.loader

    def over(self, run: Run) -> None:
        """Leave the Loader as it came."""
        if self.loader is not None and self.order is not None:
            self.loader.order = self.order
        self.loader = None


def unfolding(run: Run) -> bool:
    """Whether a strategy has still to do what it does to the training."""
    return run.clock.used < max((each.unfolds for each in run.events.strategies), default=0.0)


@final
class Events:
    """Who is told of each event, in order. Callbacks: objects with methods named as events are, or
    functions, which are called at the end of each epoch.
    """

    def __init__(self, strategies: Sequence[Strategy], callbacks: Sequence[Any] = ()) -> None:
        self.strategies = tuple(strategies)
        told = {name: _listeners(name, strategies, callbacks) for name in EVENTS}
        self.begin, self.end, self.over = told["begin"], told["end"], told["over"]
        self.epoch_begin, self.epoch_end = told["epoch_begin"], told["epoch_end"]
        self.batch, self.loss = told["batch"], told["loss"]
        self.gradients, self.step_end = told["gradients"], told["step_end"]
        self.validated = told["validated"]


def listens(callback: Any) -> bool:
    """Whether it has a method for an event; it may have something else of that name."""
    return any(callable(getattr(callback, event, None)) for event in EVENTS)


def _listeners(
    name: str, strategies: Sequence[Strategy], callbacks: Sequence[Any]
) -> tuple[Callable[..., Any], ...]:
    found: list[Any] = []
    for each in (*strategies, *callbacks):
        method = getattr(each, name, None)
        if isinstance(each, Strategy):
            if getattr(type(each), name) is not getattr(Strategy, name):
                found.append(method)
        elif callable(method):
            found.append(method)
        elif name == "epoch_end" and callable(each) and not listens(each):
            found.append(each)
    return tuple(found)


def check(
    strategies: Sequence[Strategy], *, validation: bool, end: bool, sharded: bool = False
) -> None:
    """Raise UsageError where strategies do not go together, or lack what they need."""
    for one, other in itertools.combinations(strategies, 2):
        if why := clash(one, other):
            raise UsageError(why, "keep one of them")
    for each in strategies:
        if sharded and each.whole:
            raise UsageError(
                f"{each.name} does not go with shard=True: {each.whole}", "leave one of them out"
            )
    has: dict[Need, bool] = {"validation": validation, "an end": end}
    for each in strategies:
        for need in each.needs:
            if not has[need]:
                raise UsageError(f"{each.name} needs {need}", HINTS[need])


def clash(one: Strategy, other: Strategy) -> str | None:
    """Why two strategies cannot be used together."""
    if one.name == other.name:
        return f"{one.name} is given twice"
    for each, against in ((one, other), (other, one)):
        if against.name in each.clashes:
            why = each.clashes[against.name]
            return f"{each.name} does not go with {against.name}: {why}"
    both = next((what for what in one.sets if what in other.sets), None)
    return f"{one.name} and {other.name} both set {both}" if both is not None else None

"""task_curriculum: of several tasks the easiest is learnt first, and the others join it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import OutpaceError, UsageError
from outpace.seams.generators import generators_kept
from outpace.seams.rate import set_rate
from outpace.train import ranks
from outpace.train.data import while_small
from outpace.train.layers import set_learning
from outpace.train.objective import lent
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

BATCHES = 32
SHARE, FEWEST_STEPS = 0.1, 5
"""of the training that trials may take; fewer steps a task tell nothing"""


@final
class TaskCurriculum(Strategy):
    """Tasks join the training one after the other, the one that is learnt fastest first.

    What: with ``loss={"name": loss, ...}`` each task is first trained alone on a copy, for ``steps``
    steps of the same batches at the largest rate that strategies before this one have set; the share
    of its loss that is gone tells how easy it is. Training begins with the easiest task; the next ones
    join at equal distances, the last one at ``until`` of the budget. ``order``: names, instead of
    trials. The loss that is told is of all tasks throughout.
    Helps: where tasks share layers, a hard one needs what is learnt for an easy one, and its loss is
    the larger: from the first step on together, its aimless gradients would hold that up.
    Harms: where losses are as large as each other, or tasks have nothing to do with each other: the
    hard one has less of the budget then, and often needs as many steps as ever after it has joined. The
    trials cost up to a tenth of the training, and a copy of model and optimizer for the time.
    Source: Bengio et al. 2009, "Curriculum learning"; Pentina, Sharmanska and Lampert 2015, arXiv
    1412.1353 (Curriculum learning of multiple tasks).
    """

    name = "task_curriculum"
    sets = ("the loss",)
    needs = ("an end",)
    raises_loss = True

    def __init__(
        self, *, until: float = 0.2, order: Sequence[str] | None = None, steps: int = 30
    ) -> None:
        if not 0.0 < until <= 1.0 or steps < FEWEST_STEPS:
            raise UsageError(
                f"until={until:g}, steps={steps}",
                f"until is a share of the budget, steps {FEWEST_STEPS} or more",
            )
        self.until, self.steps = until, steps
        self.given = list(order or ())
        self.order: list[str] = []
        self.joined: set[str] = set()

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.until

    def prepare(self, run: Run) -> None:
        """Have the tasks that joined learnt, which are all as long as nobody has looked."""
        tasks = run.objective.tasks
        if len(tasks) < 2:
            raise UsageError(
                "task_curriculum orders tasks, and loss= is one", "give loss={'name': loss, ...}"
            )
        if self.given and sorted(self.given) != sorted(tasks):
            raise UsageError(
                f"order={self.given}, and the losses are {', '.join(tasks)}", "name each of them"
            )
        self.order, self.joined = list(self.given), set(tasks)
        run.objective.learning = partial(self.learning, tasks, run.world)

    def learning(self, tasks: Mapping[str, Any], world: int, *given: Any) -> torch.Tensor:
        """The sum of all losses, of which those that joined have gradients."""
        losses = []
        for name, loss in tasks.items():
            joined = name in self.joined
            # Several ranks wait for the gradient of each weight, be it zero.
            with torch.set_grad_enabled(torch.is_grad_enabled() and (joined or world > 1)):
                value = loss(*lent(*given))
            losses.append(value if joined or world == 1 else value.detach() + 0.0 * value)
        return torch.stack(losses).sum()

    def begin(self, run: Run) -> None:
        """Look which is the easiest."""
        if not self.order:
            self.order = self.tried(run)
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """Have the next one join where it is time to."""
        used, last = run.clock.used, len(self.order) - 1
        self.joined = {n for i, n in enumerate(self.order) if used >= self.until * i / last}

    def tried(self, run: Run) -> list[str]:
        """Names, the easiest first."""
        tasks = run.objective.tasks
        names = list(tasks)
        total, steps = run.clock.steps, self.steps
        if total is not None:
            steps = min(steps, int(SHARE * total / len(names)))
        if steps < FEWEST_STEPS:
            run.note(f"task_curriculum: {total} steps are too few for trials: {told(names)}")
            return names
        began = run.clock.read()

        def in_time(found: Sequence[Any]) -> bool:
            return run.clock.within(SHARE / 2, began)  # the other half is for trials

        batches = run.train.peek(min(steps, BATCHES), while_small(in_time, run.world))
        gone: dict[str, float] = {}
        for name in names if in_time(batches) else ():
            try:
                gone[name] = learnt(run, name, batches, steps)
            except OutpaceError:
                raise
            except Exception as error:  # of a model, an optimizer or a loss that does not bear it
                run.note(f"task_curriculum: no trial on a copy ({error}): {told(names)}")
                return names
            if not run.clock.within(SHARE, began):
                break
        if len(gone) < len(names):
            run.note(f"task_curriculum: trials take too long: {told(names)}")
            return names
        if run.world > 1:
            sums = ranks.summed(list(gone.values()), run.device)
            gone = {name: each / run.world for name, each in zip(names, sums, strict=True)}
        order = sorted(names, key=lambda name: -gone[name])
        shares = ", ".join(f"{name} {gone[name]:.0%}" for name in order)
        run.note(
            f"task_curriculum: {told(order)}; gone of the loss in {steps} steps alone: {shares}"
        )
        return order

    def state_dict(self) -> dict[str, Any]:
        """The order."""
        return {"order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with it."""
        self.order = list(state["order"])


def learnt(run: Run, task: str, batches: Sequence[Any], steps: int) -> float:
    """Share of a task's loss that is gone after so many steps on it alone, on a copy."""
    loss = run.objective.tasks[task]
    model, optimizer = run.copies()
    for group, rate in zip(optimizer.param_groups, run.rates.largest, strict=True):
        set_rate(group, rate * run.rates.scale)
    set_learning(model)
    with generators_kept(), run.objective.kept():
        before = mean(run, model, loss, batches)
        for batch in islice((batch for _ in range(steps) for batch in batches), steps):
            loss(*run.objective.given(model, batch)).backward()
            optimizer.step()
            optimizer.zero_grad()
        after = mean(run, model, loss, batches)
    gone = (before - after) / abs(before) if before else 0.0
    return gone if math.isfinite(gone) else -math.inf  # what blows up is not easy


def mean(run: Run, model: torch.nn.Module, loss: Any, batches: Sequence[Any]) -> float:
    """Of a task's loss, in training's mode."""
    with torch.no_grad():
        losses = [loss(*run.objective.given(model, batch)).reshape(()) for batch in batches]
    return float(torch.stack(losses).mean())


def told(order: Sequence[str]) -> str:
    """``first a, then b``."""
    return f"first {', then '.join(order)}"

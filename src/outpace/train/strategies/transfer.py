"""transfer: weights of another training, which begin frozen and then learn slower than what is new."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import nn

from outpace.errors import DataError, UsageError
from outpace.train.optimizers import Rates
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

WRAPPERS = ("module.", "_orig_mod.")
"""that DistributedDataParallel and torch.compile put before names"""
INSIDE = ("model", "state_dict")
"""where a checkpoint has the weights"""
TOLD = 4
Part = list[nn.Parameter]


class Report(NamedTuple):
    """Names of weights and buffers: ``loaded``; ``other_shape``, with both shapes; ``missing``, which
    only the model has; ``unused``, which only the weights have.
    """

    loaded: tuple[str, ...]
    other_shape: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


@final
class Transfer(Strategy):
    """Training begins with what fits of other weights; it is frozen, and set free part by part.

    What: what has the same name and shape in ``weights``, a state dict or the path of one, is loaded;
    what does not fit is told, and in ``report``. Layers with nothing new, in the model's order, are
    ``parts`` of as many each. What is new learns from the first step on, each part further from the
    output later, all of them from ``unfreeze`` of the budget on, at a rate ``lower`` times lower than
    the part after it. Statistics of BatchNorm adapt from the begin.
    Helps: where there are few data, and the weights are of a task whose features hold for this one.
    Harms: where the tasks differ, what was learnt there may be a worse begin than random weights. A
    model whose layers do not stand in the order in which they are called is set free in a wrong order.
    Source: Howard and Ruder 2018, arXiv 1801.06146, sections 3.2 (rates, 2.6) and 3.3 (unfreezing);
    Yosinski et al. 2014, arXiv 1411.1792.
    """

    name = "transfer"
    sets = ("the first weights",)
    needs = ("an end",)

    def __init__(
        self,
        weights: Mapping[str, Any] | str | Path,
        *,
        lower: float = 2.6,
        parts: int = 3,
        unfreeze: float = 0.3,
    ) -> None:
        if lower < 1.0 or parts < 1 or not 0.0 <= unfreeze <= 1.0:
            raise UsageError(
                f"lower={lower:g}, parts={parts}, unfreeze={unfreeze:g}",
                "lower and parts are 1 or more, unfreeze is a share of the budget",
            )
        self.weights, self.lower, self.count, self.unfreeze = weights, lower, parts, unfreeze
        self.report: Report | None = None
        self.fitting: dict[str, Any] = {}
        self.parts: list[Part] = []
        """from the output to the input"""
        self.held: Part = []
        """of several ranks, whose gradients are dropped"""
        self.next = 0.0
        """share of the budget at which another part is set free"""

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.unfreeze

    def prepare(self, run: Run) -> None:
        """See what fits, and give each part its rate."""
        own = run.module.state_dict()
        # A part of the model may be called as wrappers are, and the model may be compiled.
        names = {bare(name): name for name in own}
        weights = {names.get(name, name): each for name, each in plain(self.weights).items()}
        self.report = compared(weights, own)
        if not self.report.loaded:
            raise UsageError(
                f"transfer: nothing fits the model: {told(self.report)}",
                "give weights of a model with some of the same names and shapes",
            )
        self.fitting = {name: weights[name] for name in self.report.loaded}
        self.parts = parts_of(run.module, set(self.fitting), self.count)
        regroup(run.optimizer, self.parts, self.lower)
        run.rates = Rates(run.optimizer)

    def first_weights(self, run: Run) -> None:
        """Load what fits."""
        assert self.report is not None
        run.module.load_state_dict(self.fitting, strict=False)
        run.note(f"transfer: {told(self.report)}")

    def begin(self, run: Run) -> None:
        """Freeze what has its time to come."""
        self.fitting = {}
        self.set_free(run)

    def gradients(self, run: Run) -> None:
        """The optimizer leaves alone what has no gradient."""
        for parameter in self.held:
            parameter.grad = None

    def step_end(self, run: Run) -> None:
        """Set free what it is time for."""
        if run.clock.used >= self.next:
            self.set_free(run)

    def over(self, run: Run) -> None:
        """Leave the model as it came."""
        for part in self.parts:
            for parameter in part:
                parameter.requires_grad_(True)

    def set_free(self, run: Run) -> None:
        """By the share of the budget that is used alone, so that a resume has nothing to know."""
        times = [self.unfreeze * i / max(1, len(self.parts) - 1) for i in range(len(self.parts))]
        self.next = next((time for time in times if time > run.clock.used), math.inf)
        self.held = []
        for part, time in zip(self.parts, times, strict=True):
            frozen = time >= self.next
            if run.world > 1:  # DistributedDataParallel waits for the gradient of each weight
                self.held += part if frozen else []
                continue
            for parameter in part:
                parameter.requires_grad_(not frozen)


def plain(weights: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A state dict, as a model that is not wrapped has it."""
    if isinstance(weights, str | Path):
        path = weights
        try:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise DataError(f"{path} cannot be read: {error}", "torch.save a state dict") from error
    if not isinstance(weights, Mapping):
        kind = type(weights).__name__
        raise UsageError(f"transfer: a {kind} is no state dict", "give model.state_dict()")
    inside = (weights[key] for key in INSIDE if isinstance(weights.get(key), Mapping))
    found = dict[str, Any]()
    for name, value in next(inside, weights).items():
        found[bare(name)] = value
    return found


def bare(name: str) -> str:
    """A name without what wrappers have put before it."""
    while wrapper := next((each for each in WRAPPERS if name.startswith(each)), None):
        name = name.removeprefix(wrapper)
    return name


def compared(weights: Mapping[str, Any], own: Mapping[str, torch.Tensor]) -> Report:
    """What of some weights fits a model's own."""
    both = [name for name in own if name in weights]

    def shape(value: Any) -> Any:  # what a module keeps besides its weights may have none
        return getattr(value, "shape", ())

    fits = {n for n in both if shape(weights[n]) == shape(own[n])}
    return Report(
        tuple(name for name in both if name in fits),
        tuple(
            f"{name} {list(shape(weights[name]))} there, {list(shape(own[name]))} here"
            for name in both
            if name not in fits
        ),
        tuple(name for name in own if name not in weights),
        tuple(name for name in weights if name not in own),
    )


def told(report: Report) -> str:
    """``12 of 14 tensors loaded; another shape: head.weight [3, 16] there, [5, 16] here``."""
    total = len(report.loaded) + len(report.other_shape) + len(report.missing)
    text = f"{len(report.loaded)} of {total} tensors loaded"
    for what, names in (
        ("another shape", report.other_shape),
        ("only here", report.missing),
        ("only there", report.unused),
    ):
        if names:
            more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
            text += f"; {what}: {', '.join(names[:TOLD])}{more}"
    return text


def parts_of(model: nn.Module, loaded: set[str], count: int) -> list[Part]:
    """Layers with something new, then the others in ``count`` parts of as many, last ones first."""
    seen: set[int] = set()
    new: Part = []
    old: list[Part] = []
    for prefix, layer in model.named_modules():
        own = [
            (name, parameter)
            for name, parameter in layer.named_parameters(prefix, recurse=False)
            if parameter.requires_grad and id(parameter) not in seen
        ]
        seen.update(id(parameter) for _, parameter in own)
        if own and all(name in loaded for name, _ in own):
            old.append([parameter for _, parameter in own])
        else:
            new += [parameter for _, parameter in own]
    bounds = [round(len(old) * i / count) for i in range(count + 1)]
    parts = [sum(old[a:b], Part()) for a, b in itertools.pairwise(bounds)]
    return [part for part in (new, *reversed(parts)) if part]


def regroup(optimizer: torch.optim.Optimizer, parts: Sequence[Part], lower: float) -> None:
    """Groups of weights that are of one part each, at a rate ``lower`` times lower than the part before.

    What is in no part goes with the first.
    """
    of = {id(parameter): i for i, part in enumerate(parts) for parameter in part}
    groups = [
        {**group, "params": mine, "lr": group["lr"] / lower**i}
        for i in range(len(parts))
        for group in optimizer.param_groups
        if (mine := [p for p in group["params"] if of.get(id(p), 0) == i])
    ]
    optimizer.param_groups[:] = groups

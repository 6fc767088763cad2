"""Optimizers for those who gave none, and the learning rates of whichever is used.

Only weight matrices decay: not biases, and not scales, of norms or of channels, of however many dimensions.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.seams.held import held_by
from outpace.seams.optimizer import begin_momenta
from outpace.seams.rate import finds_its_rate, set_rate
from outpace.train.layers import MULTIPLY, copies_of, copy_of

if TYPE_CHECKING:
    from outpace.train.strategies.base import Strategy

RATE = 1e-3
"""of AdamW, where nobody sets it"""
SGD_RATE = 0.05
SETTINGS = ("lr", "weight_decay", "momentum", "betas", "eps", "alpha", "dampening")
TABLES = (torch.nn.Embedding, torch.nn.EmbeddingBag)
NORMS = (torch.nn.LayerNorm, torch.nn.RMSNorm)
"""whose scales have the shape that they are taken over; those of others have one dimension"""

Given = torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None
"""an optimizer, or a function from parameters to one, or None"""


def adamw(
    model: torch.nn.Module, weight_decay: float = 0.01, rate: float = RATE
) -> torch.optim.AdamW:
    """AdamW, its step made by one kernel where there is one for these weights."""
    check_dense(model, "AdamW")
    return torch.optim.AdamW(groups(model, weight_decay), rate, fused=fusible(model) or None)


def sgd(
    model: torch.nn.Module, momentum: float = 0.9, weight_decay: float = 0.0, rate: float = SGD_RATE
) -> torch.optim.SGD:
    """SGD with Nesterov's momentum."""
    made = torch.optim.SGD(
        groups(model, weight_decay),
        rate,
        momentum=momentum,
        nesterov=momentum > 0,
        fused=fusible(model) or None,
    )
    begin_momenta(made)
    return made


def optimizer_for(
    given: Given, model: torch.nn.Module, strategies: Sequence[Strategy]
) -> torch.optim.Optimizer:
    """The user's, or of the strategy that sets it, or of the first that has one."""
    if isinstance(given, torch.optim.Optimizer):
        return given
    if not any(p.requires_grad for p in model.parameters()):
        raise UsageError(
            "the model has no weights that learn", "requires_grad_(True) on those that are to"
        )
    if given is not None:
        found = given([p for p in model.parameters() if p.requires_grad])
        if not hasattr(found, "param_groups"):
            raise UsageError(
                f"optimizer= gives a {type(found).__name__}",
                "it is to give an optimizer: lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
            )
        check_steps(found)
        return found
    first = sorted(strategies, key=lambda each: "the optimizer" not in each.sets)
    made = (strategy.optimizer(model) for strategy in first)
    return next((each for each in made if each is not None), None) or adamw(model)


def has_own_optimizer(strategy: Strategy) -> bool:
    """Whether a strategy brings an optimizer that the user has set in it: of another decay, or of a class of
    the user's.
    """
    kind = type(strategy)
    decay = inspect.signature(kind).parameters.get("weight_decay")
    if not kind.__module__.startswith(f"{__package__}."):
        return "optimizer" in vars(kind)
    return decay is not None and getattr(strategy, "weight_decay", None) != decay.default


def unused_decay(strategies: Sequence[Strategy]) -> str:
    """What is told where such a decay counts for nothing, as another strategy sets the optimizer."""
    sets = next((each.name for each in strategies if "the optimizer" in each.sets), None)
    lost = [each.name for each in strategies if each.name != sets and has_own_optimizer(each)]
    if sets is None or not lost:
        return ""
    return f"{lost[0]}: its optimizer is not used, as {sets} sets one: give that its weight_decay"


def check_steps(optimizer: torch.optim.Optimizer) -> None:
    """Raise UsageError for one that does not step by gradients and a rate alone."""
    kind = type(optimizer).__name__
    if asked := asked_for(optimizer.step):
        raise UsageError(
            f"optimizer= is {kind}, whose step() asks for {', '.join(asked)}",
            "give one that steps by gradients alone: torch.optim.AdamW(model.parameters())",
        )
    if finds_its_rate(optimizer):
        raise UsageError(
            f"optimizer= is {kind} without a rate (lr=None)",
            f"give it one: {kind}(parameters, lr=1e-3)",
        )


def check_unscheduled(optimizer: torch.optim.Optimizer, strategies: Sequence[Strategy]) -> None:
    """Raise UsageError where a strategy is to set the rate's course, and a scheduler has set the rate: it is
    that of the scheduler's first step, and no largest one.
    """
    course = next((each.name for each in strategies if "the rate's course" in each.sets), None)
    if course is None or any("the largest rate" in each.sets for each in strategies):
        return
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise UsageError(
            f"a scheduler is on the optimizer, and {course} sets the rate's course",
            "make the optimizer without one, or leave courses out, strategies=[], and step the scheduler "
            "in a callback",
        )
    if not any(float(group["lr"]) for group in optimizer.param_groups):
        raise UsageError(
            "optimizer= has a rate of 0", f"give it the largest rate that {course} is to have"
        )


def asked_for(function: Callable[..., Any]) -> list[str]:
    """Names of what it cannot be called without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    left_out = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    asked = [p.name for p in parameters if p.default is p.empty and p.kind not in left_out]
    return [name for name in asked if name != "self"]  # of a method that a scheduler has wrapped


def copies(
    given: Given, model: torch.nn.Module, strategies: Sequence[Strategy]
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A copy of the model, and the optimizer of it."""
    if isinstance(given, torch.optim.Optimizer):
        return copies_of(model, given)
    own = copy_of(model)
    made = optimizer_for(given, own, strategies)
    if held_by(made).isdisjoint(map(id, own.parameters())):
        raise UsageError(
            "optimizer= makes an optimizer of other weights than those it is given",
            "have it make groups of its argument",
        )
    return own, made


@contextmanager
def settings_kept(optimizer: Given) -> Iterator[None]:
    """Afterwards an optimizer of the user's has its groups, rates and momentum as they were; what it has
    learnt of the gradients stays.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        yield
        return
    before = [
        {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in group.items()}
        for group in optimizer.param_groups
    ]
    try:
        yield
    finally:
        optimizer.param_groups[:] = before


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Rates, decays and momenta of each group, as they are."""
    return [
        {name: float(v) if name == "lr" else v for name, v in group.items() if name in SETTINGS}
        for group in optimizer.param_groups
    ]


def with_added_groups(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's older state, and the groups that a callback has added since, which are not in it."""
    if "param_groups" not in state:  # one that is made of others keeps theirs
        return state
    before = state["param_groups"]
    added = optimizer.state_dict()["param_groups"][len(before) :]
    return {**state, "param_groups": [*before, *added]}


def groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters that decay, and those that do not."""
    learned, whole = [p for p in model.parameters() if p.requires_grad], matrices(model)
    found = [
        {"params": [p for p in learned if id(p) in whole], "weight_decay": weight_decay},
        {"params": [p for p in learned if id(p) not in whole], "weight_decay": 0.0},
    ]
    return [group for group in found if group["params"]]


def matrices(model: torch.nn.Module) -> set[int]:
    """Ids of the weights of two or more dimensions that are neither biases nor scales, of norms or else."""
    return {
        id(weight)
        for layer in model.modules()
        for name, weight in layer.named_parameters(recurse=False)
        if weight.dim() >= 2
        and not (isinstance(layer, NORMS) or name.endswith("bias") or is_scale(layer, weight))
    }


def is_scale(layer: torch.nn.Module, weight: torch.Tensor) -> bool:
    """Whether a weight is a number for each channel, with dimensions of one place beside: what ConvNeXt
    scales its branches by, or the lengths that weight_norm has.
    """
    single = sum(side > 1 for side in weight.shape) < 2
    return single and not isinstance(layer, (*MULTIPLY, *TABLES))


def sparse_tables(model: torch.nn.Module) -> list[str]:
    """Names of the embeddings that learn, and whose gradients are sparse."""
    return [
        name
        for name, each in model.named_modules()
        if isinstance(each, TABLES) and each.sparse and each.weight.requires_grad
    ]


def check_dense(model: torch.nn.Module, name: str) -> None:
    """Raise UsageError where an optimizer would meet gradients that it does not take."""
    if tables := sparse_tables(model):
        raise UsageError(
            f"{name} takes no sparse gradients, as {tables[0]} has (sparse=True)",
            "strategies=['auto', 'sgd'], or an embedding without sparse=True",
        )


def fusible(model: torch.nn.Module) -> bool:
    """Whether the fused kernels take all of a model's weights, and their gradients."""
    if sparse_tables(model):
        return False
    return all(
        p.device.type in ("cpu", "cuda") and p.is_floating_point() and type(p) is torch.nn.Parameter
        for p in model.parameters()
        if p.requires_grad
    )


def times_the_rate(
    optimizer: torch.optim.Optimizer, before: int, samples: int, noise: float
) -> float:
    """How many times as large the rate of steps of so many samples is to be.

    In proportion to them for SGD (Goyal et al. 2017, arXiv 1706.02677), to their root for Adam and its
    like (Malladi et al. 2022, arXiv 2205.10287), as long as ``noise``, the samples at which a gradient
    is as much noise as signal, are many more; the nearer to those, the less (McCandlish et al. 2018,
    arXiv 1812.06162, eq. 2.6). Infinite: not known, taken to be many more.
    """
    if math.isinf(noise):
        times = samples / before
    else:
        times = (1.0 + noise / before) / (1.0 + noise / samples)
    return times if isinstance(optimizer, torch.optim.SGD) else math.sqrt(times)


def set_momentum(optimizer: torch.optim.Optimizer, momentum: float) -> None:
    """SGD's momentum or Adam's first beta, where there is one: those of 0 stay."""
    for group in optimizer.param_groups:
        if has_momentum(group) and "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif has_momentum(group):
            group["momentum"] = momentum


def has_momentum(group: dict[str, Any]) -> bool:
    """Whether a group of an optimizer's has any."""
    return bool(group["betas"][0] if "betas" in group else group.get("momentum"))


@final
class Rates:
    """Each group's largest rate, times where the schedule is, times a scale.

    A schedule sets ``factor`` (0 to 1); what changes the rate for good, a plateau, a roll-back or another
    size of batches, ``scale``; who finds the largest rate sets that. So they do not undo each other's
    work. Groups that a callback adds join with the rate that they come with as their largest.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.groups = optimizer.param_groups
        self.largest = self.each
        self.factor = self.scale = 1.0

    @property
    def peak(self) -> float:
        """The largest of the largest, as it is scaled now."""
        return max(self.largest) * self.scale

    @property
    def each(self) -> list[float]:
        """Of the groups, as they are: a callback may have set others."""
        return [float(group["lr"]) for group in self.groups]

    @property
    def now(self) -> float:
        """The rate of the first group."""
        return float(self.groups[0]["lr"])

    def put(self, rates: Sequence[float]) -> None:
        """As `each` was."""
        for group, rate in zip(self.groups, rates, strict=True):
            set_rate(group, rate)

    def join(self) -> None:
        """Take up the groups that were added."""
        self.largest += [float(group["lr"]) for group in self.groups[len(self.largest) :]]

    def set(self, factor: float) -> None:
        """Where the schedule is."""
        self.join()
        self.factor = factor
        factor *= self.scale
        for group, largest in zip(self.groups, self.largest, strict=True):
            if type(group["lr"]) is float:  # at each step: what set_rate asks takes as long again
                group["lr"] = largest * factor
            else:
                set_rate(group, largest * factor)

    def set_peak(self, rate: float) -> None:
        """The largest rate; the groups stay in proportion."""
        self.join()
        before = max(self.largest)
        self.largest = [rate * largest / before if before else rate for largest in self.largest]
        self.set(self.factor)

    def rescale(self, times: float) -> None:
        """From now on so many times as large."""
        self.join()
        self.scale *= times
        self.put([times * rate for rate in self.each])

    def state_dict(self) -> dict[str, Any]:
        """All of them."""
        own = {"largest": self.largest, "factor": self.factor, "scale": self.scale}
        return {**own, "each": self.each}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with them."""
        self.largest, self.scale = list(state["largest"]), float(state["scale"])
        self.set(float(state["factor"]))
        self.put(state.get("each", self.each))  # an older checkpoint has none

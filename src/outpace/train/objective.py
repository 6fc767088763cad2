"""What is made smaller, and what is judged by: the user's loss and metric, in the ways they are given.

``loss(outputs, targets)`` takes batches that are pairs (inputs, targets). A loss whose first parameter
is called ``model`` takes any batch: ``loss(model, batch)``; the metric is then called in the same way. A
metric may also be an object with ``update``, ``compute()`` and ``reset()``, as those of torchmetrics are,
where a mean over batches would be wrong (F1, recall). Several tasks are a dict of losses by name, whose
sum is the loss.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple, final

import torch

from outpace.errors import UsageError
from outpace.seams.batch import batch_size, map_tensors, to_float32
from outpace.seams.loss import apart
from outpace.train import better
from outpace.train.finite import finite
from outpace.train.whole_metric import WholeMetric

PAIRS = (tuple, list)
LOSS = "loss=torch.nn.functional.cross_entropy, or a dict of such for several tasks"
METRIC = (
    "give a function of (outputs, targets), one alone: "
    "metric=lambda outputs, targets: (outputs.argmax(1) == targets).float().mean()"
)
NO_GRADIENT = "does not require grad"
"""what torch says where a gradient is asked for and none is recorded"""


class Judged(NamedTuple):
    """What a validation gave; ``samples`` were looked at, of ``untold`` of which the loss is no number: it
    is the mean of the others. The metric is that of ``measured`` samples, where it is a number.
    """

    loss: float
    metric: float | None
    samples: int
    untold: int = 0
    measured: int = 0


@final
class Objective:
    """A loss, and a metric where there is one. ``larger_is_better``: of the metric; None: by what the metric
    or its name tells.
    """

    def __init__(
        self, loss: Any, metric: Any = None, *, larger_is_better: bool | None = None
    ) -> None:
        self.tasks: dict[str, Any] = dict(loss) if isinstance(loss, Mapping) else {}
        """losses by name, where there are several"""
        parts = self.tasks or {"loss": loss}
        self.gathers = all(hasattr(metric, name) for name in ("update", "compute", "reset"))
        for name, value in (*parts.items(), ("metric", metric)):
            if isinstance(value, type):
                raise UsageError(
                    f"{name} is the class {value.__name__}", f"give {value.__name__}()"
                )
            usable = callable(value) or (value is metric and self.gathers)
            if value is not None and not usable:
                raise UsageError(f"{name} is {value!r}", METRIC if name == "metric" else LOSS)
        self.takes_model = takes_model(next(iter(parts.values())))
        if any(takes_model(each) != self.takes_model for each in parts.values()):
            raise UsageError(
                f"some of the losses {', '.join(parts)} take a model, and others outputs",
                "have all of them take (outputs, targets), or all of them (model, batch)",
            )
        self.loss = summed(self.tasks) if self.tasks else loss
        self.learning = self.loss
        """what is learnt from: the loss, unless a strategy puts another in its place"""
        self.metric = metric
        of_whole = better.is_of_whole(metric) and not self.gathers
        self.whole = of_whole and not self.takes_model
        """the metric is one of all outputs and targets together, not a mean over batches"""
        self.averaged = of_whole and self.takes_model
        """it is that mean all the same"""
        self.metric_name = None if metric is None else better.called(metric)
        self.losses = {n: each for n, each in parts.items() if isinstance(each, torch.nn.Module)}
        self.differentiates = False
        """the loss asks for gradients itself, also where none are recorded, as that of an equation does"""
        self.precision: Callable[[], AbstractContextManager[Any]] | None = None
        """what the model is called in where it is learnt from"""
        larger, self.unsure = better.larger_is_better(metric, larger_is_better)
        """a note where nothing tells whether a larger metric is better"""
        self.sign = 1.0 if metric is not None and larger else -1.0

    def to(self, device: torch.device) -> None:
        """Move what losses and the metric hold, such as the weights of classes."""
        for each in (*self.losses.values(), self.metric):
            if isinstance(each, torch.nn.Module):
                each.to(device)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What losses and the metric learn inside of the batches they are given is forgotten afterwards."""
        modules = [
            module
            for each in (*self.losses.values(), self.metric)
            if isinstance(each, torch.nn.Module)
            for module in each.modules()
        ]
        buffers = [
            (module, name, buffer, None if buffer is None else buffer.clone())
            for module in modules
            for name, buffer in module._buffers.items()
        ]
        weights = [
            (weight, weight.detach().clone(), weight.grad)
            for module in modules
            for weight in module._parameters.values()
            if weight is not None and weight.requires_grad
        ]
        for weight, *_ in weights:
            weight.grad = None
        try:
            yield
        finally:
            with torch.no_grad():
                for module, name, buffer, before in buffers:
                    module._buffers[name] = buffer
                    if buffer is not None and before is not None:
                        buffer.copy_(before)
                for weight, value, gradient in weights:
                    weight.copy_(value)
                    weight.grad = gradient

    def own(self, learned: Iterable[torch.Tensor]) -> dict[str, torch.Tensor]:
        """What losses keep from step to step: their buffers, and those of their weights that are among
        ``learned``. What torch's own losses hold was set by the user, and stays.
        """
        ids, found = {id(weight) for weight in learned}, dict[str, torch.Tensor]()
        for task, loss in self.losses.items():
            if type(loss).__module__ != torch.nn.modules.loss.__name__:
                weights = ((n, w) for n, w in loss.named_parameters() if id(w) in ids)
                found |= {
                    f"{task}.{name}": each for name, each in (*weights, *loss.named_buffers())
                }
        return found

    def __call__(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The loss of a batch that is learnt from."""
        if self.differentiates and not torch.is_grad_enabled():
            loss: Any = self.weighed(model, batch)[1].detach()
        elif self.precision is None:
            loss = self.learning(*self.given(model, batch))
        else:
            loss = self.in_precision(model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise UsageError(
                f"loss= gives {described(loss)} for a batch, and one number is learnt from",
                "give the mean over its samples; of several tasks loss={'name': function, ...}",
            )
        return loss

    def in_precision(self, model: torch.nn.Module, batch: Any) -> Any:
        """The same with the model called in ``precision``; outputs are in float32 again for the loss."""
        assert self.precision is not None
        if self.takes_model:
            with self.precision():
                return self.learning(*self.given(model, batch))
        with self.precision():
            outputs, targets = self.given(model, batch)
        return self.learning(map_tensors(outputs, to_float32), targets)

    def judged(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The loss of a batch that is validated on."""
        loss: torch.Tensor = self.weighed(model, batch)[1]
        return loss

    def weighed(self, model: torch.nn.Module, batch: Any) -> tuple[tuple[Any, Any], Any]:
        """What the loss of a batch that is judged by was called with, for the metric, and the loss."""
        given, loss = self._weighed(model, batch)
        if self.takes_model:  # else what it was given is the batch's own
            put_back(given[1], batch)
        return given, loss

    def _weighed(self, model: torch.nn.Module, batch: Any) -> tuple[tuple[Any, Any], Any]:
        if not self.differentiates:
            try:
                given = self.given(model, batch)
                return given, self.loss(*given)
            except RuntimeError as error:
                if torch.is_grad_enabled() or NO_GRADIENT not in str(error):
                    raise
                self.differentiates = True
        with torch.enable_grad():
            one, other = self.given(model, batch)
            loss = self.loss(one, other)
        if not self.takes_model:
            one = map_tensors(one, torch.Tensor.detach)
        return (one, other), loss

    def without_metric(self) -> Objective:
        """The same, judged by its loss alone."""
        found = copy.copy(self)
        found.metric, found.gathers, found.whole = None, False, False
        return found

    def meet(self, model: torch.nn.Module, batch: Any) -> None:
        """Find out whether loss and metric take a batch of those that are judged by."""
        with judging(self.losses.values()):
            given, loss = self.weighed(model, batch)
            _numbers("loss", [loss])
            if self.gathers:  # what it computes may need more than this
                self.metric.reset()
                self.metric.update(*given)
                self.metric.reset()
            elif self.whole:
                with suppress(ValueError):  # one batch may have too little in it, as a single class
                    self.metric(*given)
            elif self.metric is not None:
                _numbers("metric", [self.metric(*given)])

    def judge(self, model: torch.nn.Module, batches: Iterable[Any]) -> Judged:
        """Mean loss and metric over batches, each weighted by its samples.

        Batches whose loss is no number are left out of its mean where all weights are numbers: as a rule
        their targets are all ignored. Weights that are none tell none of any batch.
        """
        losses, metrics, counts = [], [], []
        whole = WholeMetric(self.metric) if self.whole else None
        if self.gathers:
            self.metric.reset()
        with judging(self.losses.values()):
            for batch in batches:
                given, loss = self.weighed(model, batch)
                losses.append(apart(loss) if isinstance(loss, torch.Tensor) else loss)
                counts.append(batch_size(batch))
                if self.gathers:
                    self.metric.update(*given)
                elif whole is not None:
                    whole.add(*given)
                elif self.metric is not None:
                    metrics.append(self.metric(*given))
        if not counts:
            raise UsageError("there is nothing to validate on", "valid= gives no batch")
        values, told = _numbers("loss", losses), counts
        if any(map(math.isnan, values)) and finite(model.parameters()):
            told = where_numbers(values, counts)
        if self.gathers:
            metrics = [self.metric.compute()]
        elif whole is not None:
            metrics = whole.values()
            self.averaged = whole.apart
        samples = sum(counts)
        metric, measured = None, samples
        if metrics:
            numbers = _numbers("metric", metrics)
            of = where_numbers(numbers, counts if len(numbers) == len(counts) else [samples])
            metric, measured = mean(numbers, of), sum(of)
        return Judged(mean(values, told), metric, samples, samples - sum(told), measured)

    def given(self, model: torch.nn.Module, batch: Any) -> tuple[Any, Any]:
        """What losses and the metric are called with: outputs and targets, or model and batch."""
        if self.takes_model:
            return lent(model, batch)
        if isinstance(batch, PAIRS) and len(batch) == 2:
            return model(batch[0]), batch[1]
        what = f"{len(batch)} values" if isinstance(batch, PAIRS) else described(batch)
        raise UsageError(
            f"a batch is {what}, and loss(outputs, targets) needs the pair (inputs, targets)",
            "give a function of other batches, whose first parameter is called model: def loss(model, batch)",
        )


def lent(first: Any, second: Any) -> tuple[Any, Any]:
    """For a loss that may take labels out of a dict, which is given once more."""
    return first, copy.copy(second) if isinstance(second, MutableMapping) else second


def put_back(given: Any, batch: Any) -> None:
    """What a loss took out of the batch that it was given is there for the metric."""
    if isinstance(given, MutableMapping):
        for name in batch.keys() - given.keys():
            given[name] = batch[name]


@contextmanager
def judging(losses: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Inside, losses are in evaluation mode, as the model is."""
    modes = [(module, module.training) for loss in losses for module in loss.modules()]
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def takes_model(function: Callable[..., Any]) -> bool:
    """Whether its first parameter is called ``model``."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        return next(iter(inspect.signature(function).parameters), None) == "model"
    except (TypeError, ValueError):
        return False


def summed(tasks: Mapping[str, Any]) -> Callable[[Any, Any], torch.Tensor]:
    """The sum of the losses of all tasks."""

    def loss(*given: Any) -> torch.Tensor:
        return torch.stack([each(*lent(*given)) for each in tasks.values()]).sum()

    return loss


def described(value: Any) -> str:
    """``a tensor of 24 x 3``, ``a dict of loss, logits``, ``a tuple``, ``None``."""
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return f"a tensor of {' x '.join(map(str, value.shape))}"
    names = f" of {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
    return f"a {type(value).__name__}{names}"


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def where_numbers(values: Sequence[float], counts: Sequence[int]) -> list[int]:
    """The counts, 0 of what is no number."""
    return [0 if math.isnan(v) else n for v, n in zip(values, counts, strict=True)]


def mean(values: Sequence[float], counts: Sequence[int]) -> float:
    """Weighted by ``counts``: what counts for nothing may be no number. Nor is the mean of nothing."""
    parts = (value * count for value, count in zip(values, counts, strict=True) if count)
    return sum(parts) / sum(counts) if any(counts) else math.nan


def _numbers(what: str, values: list[Any]) -> list[float]:
    """Values on a device are read together."""
    for value in values:
        if not _is_number(value):
            raise UsageError(
                f"{what}= gives {described(value)} for a batch, and one number is asked for",
                "give the mean over its samples",
            )
    if all(isinstance(value, torch.Tensor) for value in values):
        values = torch.stack([value.detach().reshape(()) for value in values]).tolist()
    return [float(value) for value in values]

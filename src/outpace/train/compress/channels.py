"""Structured pruning: channels, neurons and filters are removed, and tensors become smaller.

Which: the least important of each group by the L2 norm of the weights that make them (Li et al. 2017,
arXiv 1608.08710, which has L1), or, where there is a loss, by what the loss changes without them to
first order: with a gate of one on what a channel's readers see, (dL/dgate)^2, where dL/dgate is the sum of
weight times gradient over the readers' weights of that channel (Molchanov et al. 2019, arXiv 1906.10771).
How many: by a sensitivity scan. What is left gives what the model gave with its readers' weights of the
removed channels at zero, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.measure.flops import StepCounter
from outpace.seams.batch import tensors_in
from outpace.train.compress import scan
from outpace.train.compress.groups import Group, groups
from outpace.train.compress.judging import Judging, Loss
from outpace.train.compress.layouts import Slot
from outpace.train.compress.result import Made
from outpace.train.compress.rules import NORMS
from outpace.train.layers import TRANSPOSED, traceless

LEVELS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""shares that are tried of a group's channels"""
CLOSE = 1e-3
"""of the largest output that rounding may change an output by"""
BY_OUTPUT = ("bias", "running_mean", "running_var")
Removed = Mapping[str, torch.Tensor]
"""indices of the channels to remove, by the name of their group"""


def narrow(model: nn.Module, judging: Judging, allowed: float) -> list[Made]:
    """``model`` without as many channels as the scan finds within what the metric is allowed to fall."""
    allowed = judging.scannable(allowed)
    found = groups(model, judging.args, judging.kwargs)
    if not found:
        raise UsageError(f"no layer of {type(model).__name__} has channels that can be removed")
    by, losses = "Taylor" if judging.losses else "L2 norm", judging.losses
    try:
        with judging.kept():
            important = importance(model, found, losses)
    except RuntimeError as error:
        if losses is None:
            raise
        by = f"L2 norm, as the loss gives no gradients ({error})"
        important = importance(model, found)

    def fall(shares: Mapping[str, float]) -> float:
        with masked(model, found, least(important, shares)):
            return judging.fall(model)

    curves = scan.curves(important, LEVELS, fall, allowed)
    shares = scan.shares(curves, fall, allowed)
    if not shares:
        raise UsageError(
            f"no layer's channels can be removed, not even {LEVELS[0]:.0%} of them, within what "
            f"the metric may fall, {allowed:.3g}"
        )
    removed = least(important, shares)
    with masked(model, found, removed):
        expected = outputs(model, judging)
    flops, learns = arithmetic(model, judging), trains(model, judging)
    remove(model, found, removed)
    try:
        kept = same(expected, outputs(model, judging))
    except RuntimeError as error:
        raise UsageError(f"without its channels the model does not run: {error}") from error
    if not kept:
        raise UsageError("without its channels the model gives other values than with them at zero")
    if learns and not trains(model, judging):
        raise UsageError("what is called in training alone reads channels that would be removed")
    gone, total = sum(map(len, removed.values())), sum(group.size for group in found)
    said = (
        f"{gone:,} of {total:,} channels are removed, by {by}; "
        f"{arithmetic(model, judging) / 1e6:.3g} of {flops / 1e6:.3g} MFLOPs a call are left"
    )
    judging.tuned(model)
    return [Made(model, said, shares, curves)]


def importance(
    model: nn.Module, found: Sequence[Group], losses: Sequence[Loss] | None = None
) -> dict[str, torch.Tensor]:
    """[channels] of each group, by its name; the larger the more important."""
    if losses is None:
        return {group.name: norms(model, group) for group in found}
    scores = {group.name: torch.zeros(group.size) for group in found}
    frozen = [p for p in model.parameters() if not p.requires_grad]
    model.requires_grad_(True)
    try:
        for loss in losses:
            model.zero_grad()
            loss(model).backward()  # type: ignore[no-untyped-call]
            for group in found:
                scores[group.name] += gate_gradients(model, group).square()
    finally:
        model.zero_grad()
        for parameter in frozen:
            parameter.requires_grad_(False)
    return scores


def norms(model: nn.Module, group: Group) -> torch.Tensor:
    """The L2 norm of the weights that make each channel."""
    squares = torch.zeros(group.size)
    for name in group.makers:
        layer: Any = model.get_submodule(name)
        squares += along(layer.weight.detach().square(), making(layer))
    return squares.sqrt()


def gate_gradients(model: nn.Module, group: Group) -> torch.Tensor:
    """The gradient of a gate on each channel, from the weights that read it."""
    gradient = torch.zeros(group.size)
    for slot in group.readers:
        layer: Any = model.get_submodule(slot.layer)
        if layer.weight.grad is not None:
            each = along(layer.weight.detach() * layer.weight.grad, reading(layer))
            part = each[slot.offset : slot.offset + group.size * slot.width]
            gradient += part.view(group.size, slot.width).sum(1)
    return gradient


def least(
    important: Mapping[str, torch.Tensor], shares: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """Indices of the least important share of some groups' channels; at least one is left of each."""
    found = {}
    for name, share in shares.items():
        scores = important[name]
        found[name] = scores.argsort()[: min(len(scores) - 1, int(share * len(scores)))]
    return found


@contextmanager
def masked(model: nn.Module, found: Sequence[Group], removed: Removed) -> Iterator[None]:
    """Inside, nothing reads the removed channels; outside the model is as it was."""
    before: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for group in found:
            for slot in group.readers if group.name in removed else ():
                layer: Any = model.get_submodule(slot.layer)
                before.setdefault(slot.layer, layer.weight.clone())
                features = features_of(slot, removed[group.name]).to(layer.weight.device)
                layer.weight.index_fill_(reading(layer), features, 0.0)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, values in before.items():
                layer = model.get_submodule(name)
                layer.weight.copy_(values)


def remove(model: nn.Module, found: Sequence[Group], removed: Removed) -> None:
    """Take channels out of the layers that make, carry and read them, in place."""
    made: dict[str, list[torch.Tensor]] = {}
    read: dict[str, list[torch.Tensor]] = {}
    for group in found:
        if group.name in removed:
            indices = removed[group.name]
            for name in group.makers:
                made.setdefault(name, []).append(indices)
            for slot in group.carriers:
                made.setdefault(slot.layer, []).append(features_of(slot, indices))
            for slot in group.readers:
                read.setdefault(slot.layer, []).append(features_of(slot, indices))
    for gone, output in ((made, True), (read, False)):
        for name, features in gone.items():
            shrink(model.get_submodule(name), torch.cat(features), output=output)


def shrink(layer: Any, gone: torch.Tensor, *, output: bool) -> None:
    """Take features out of a layer's output, or out of its input."""
    names = sizes(layer, output=output)
    kept = torch.ones(getattr(layer, names[0]), dtype=torch.bool)
    kept[gone] = False
    for name in ("weight", *BY_OUTPUT) if output else ("weight",):
        tensor = getattr(layer, name, None)
        if tensor is None:
            continue
        dim = 0
        if name == "weight":
            dim = making(layer) if output else reading(layer)
        smaller = tensor.detach().index_select(dim, kept.nonzero().flatten().to(tensor.device))
        learned = isinstance(tensor, nn.Parameter)
        setattr(layer, name, nn.Parameter(smaller, tensor.requires_grad) if learned else smaller)
    for name in names:
        setattr(layer, name, int(kept.sum()))


def sizes(layer: Any, *, output: bool) -> tuple[str, ...]:
    """The attributes in which a layer has how many features it gives, or takes."""
    if isinstance(layer, NORMS):
        return ("num_features",)
    if isinstance(layer, nn.Linear):
        return ("out_features",) if output else ("in_features",)
    if layer.groups > 1:  # depthwise
        return ("out_channels", "in_channels", "groups")
    return ("out_channels",) if output else ("in_channels",)


def making(layer: Any) -> int:
    """The dimension of a layer's weights that its outputs are along."""
    return 1 if isinstance(layer, TRANSPOSED) and layer.groups == 1 else 0


def reading(layer: Any) -> int:
    """The dimension of a layer's weights that its inputs are along."""
    return 0 if isinstance(layer, TRANSPOSED) else 1


def along(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Sums of all that has the same index in a dimension, on the CPU."""
    return values.transpose(0, dim).flatten(1).sum(1).float().cpu()


def features_of(slot: Slot, channels: torch.Tensor) -> torch.Tensor:
    """Indices of the features of some channels in a layer."""
    return (slot.offset + channels.unsqueeze(1) * slot.width + torch.arange(slot.width)).flatten()


def outputs(model: nn.Module, judging: Judging) -> list[torch.Tensor]:
    """The tensors that a model gives for a batch."""
    with torch.no_grad():
        return list(tensors_in(judging.call(model)))


def trains(model: nn.Module, judging: Judging) -> bool:
    """Whether a model can be called as in training."""
    try:
        with traceless(model):
            judging.call(model)
    except (RuntimeError, ValueError):
        return False
    return True


def same(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> bool:
    """Whether outputs are the same but for rounding."""
    return len(expected) == len(found) and all(map(close, expected, found))


def close(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    if one.shape != two.shape or not one.numel():
        return one.shape == two.shape
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    off = (
        torch.where(one == two, 0.0, one - two).abs().max()
    )  # what is infinite in both is the same
    largest = torch.where(one.isfinite(), one, 0.0).abs().max().clamp(min=1e-6)
    return bool(off <= max(CLOSE, 4 * torch.finfo(one.dtype).eps) * largest)


def arithmetic(model: nn.Module, judging: Judging) -> int:
    """FLOPs of a call."""
    with torch.no_grad(), StepCounter() as counter:
        judging.call(model)
    assert isinstance(counter, StepCounter)
    return counter.count.flops

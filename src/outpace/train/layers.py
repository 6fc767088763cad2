"""A model's layers as they are called, found by a forward pass that leaves no trace.

Layers whose weights are used without calling them (inside of MultiheadAttention) are not seen.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from outpace.seams.batch import tensors_in
from outpace.seams.generators import generators_kept
from outpace.seams.modes import modes_kept, set_modes
from outpace.train.checkpoint import versioned

if TYPE_CHECKING:
    from outpace.train.objective import Objective

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
KINDS = (nn.Linear, *CONVOLUTIONS)
MULTIPLY = (*KINDS, nn.RNNBase, nn.MultiheadAttention)
"""layers whose weights are multiplied with what they are given"""
Look = Callable[[str, nn.Module, tuple[Any, ...], torch.Tensor], torch.Tensor | None]
"""name, layer, what it was given, what it gave -> what is taken for that instead, unless it is None"""


def set_learning(model: nn.Module) -> None:
    """Have it in training mode. In one that is, layers that were put in evaluation mode stay so, with all
    that is in them, as those that are not to learn.
    """
    still = [layer for layer in model.modules() if not layer.training] if model.training else []
    modes = {inner: inner.training for layer in still for inner in layer.modules()}
    model.train()
    set_modes(modes)


@contextmanager
def traceless(model: nn.Module) -> Iterator[None]:
    """Forward passes inside are as in training, and leave buffers, modes and generators as they were."""
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    with torch.no_grad(), generators_kept(), modes_kept(model):
        try:
            set_learning(model)
            yield
        finally:
            for module, name, buffer, before in buffers:
                module._buffers[name] = buffer  # another one may have been put in its place
                if buffer is not None and before is not None:
                    buffer.copy_(before)


def copy_of(model: nn.Module) -> nn.Module:
    """A model with weights of its own, and all that it keeps."""
    return _flattened(copy.deepcopy(model, _loose(model)))


def copyable(model: nn.Module) -> bool:
    """Whether it can be copied: not where it holds a lock, or a file that is open."""
    try:
        copy_of(model)
    except Exception:
        return False
    return True


def copies_of(model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
    """Both, copied together, so that the copied optimizer holds the copied weights."""
    memo = _loose(model)
    copied = copy.deepcopy(model, memo)
    return _flattened(copied), copy_of_optimizer(optimizer, memo)


def copy_of_optimizer(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    """One for the weights that ``memo`` has in place of its own, as of ``copy.deepcopy``."""
    copied = copy.deepcopy(optimizer, memo)
    for name, value in vars(optimizer).items():
        # torch copies nothing that a class has besides; a `step` in there is a scheduler's, of the first one.
        if name not in vars(copied) and name != "step":
            setattr(copied, name, copy.deepcopy(value, memo))
    return copied


def _flattened(model: nn.Module) -> nn.Module:
    """With the weights of recurrent layers in one piece of memory each, as cuDNN wants them."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()
    return model


def _loose(model: nn.Module) -> dict[int, Any]:
    """For ``copy.deepcopy``, which refuses them: the tensors that a model keeps of its last call, such as
    the weights that ``weight_norm`` has made, without what made them.
    """
    return {
        id(tensor): tensor.detach()
        for module in model.modules()
        for tensor in tensors_in(vars(module))
        if not tensor.is_leaf
    }


@torch.no_grad()
def take_buffers(mine: nn.Module, theirs: nn.Module) -> None:
    """Have a copy of a model hold its buffers, also those that have come, gone or grown since."""
    for own, given in zip(mine.modules(), theirs.modules(), strict=True):
        for name in own._buffers.keys() - given._buffers.keys():
            del own._buffers[name]
        own._non_persistent_buffers_set = set(given._non_persistent_buffers_set)
        for name, buffer in given._buffers.items():
            held = own._buffers.get(name)
            if held is not None and buffer is not None and held.shape == buffer.shape:
                held.copy_(buffer)
            else:
                own._buffers[name] = None if buffer is None else buffer.detach().clone()


def fit_buffers(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Have buffers the shapes that they have among weights that are to be loaded: some grow on the way, or
    come with the first batch.
    """
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, own in module._buffers.items():
            given = weights.get(f"{prefix}.{name}" if prefix else name)
            if given is not None and (own is None or own.shape != given.shape):
                like = own if own is not None else next(model.parameters(), given)
                module._buffers[name] = torch.empty_like(given, device=like.device)


def with_later_buffers(weights: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Weights from before some of a model's buffers came, and those as they are."""
    own = model.state_dict()
    later = {n: own[n] for n, _ in model.named_buffers() if n in own and n not in weights}
    return versioned({**later, **weights}, weights)


def shared(model: nn.Module) -> set[int]:
    """The ids of weights that several modules have, as an embedding and the layer that tells its rows."""
    owned = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    return {each for each, count in owned.items() if count > 1}


def look_at(
    model: nn.Module,
    objective: Objective,
    batch: Any,
    look: Look,
    kinds: tuple[type[nn.Module], ...] = KINDS,
) -> None:
    """Call ``look`` for each layer of these ``kinds`` as the loss of a batch comes to it."""

    def hook(name: str) -> Callable[..., torch.Tensor | None]:
        return lambda layer, given, named, output: look(
            name, layer, (*given, *named.values()), output
        )

    handles = [
        layer.register_forward_hook(hook(name), with_kwargs=True)
        for name, layer in model.named_modules()
        if isinstance(layer, kinds)
    ]
    try:
        with traceless(model), objective.kept():
            objective(model, batch)
    finally:
        for handle in handles:
            handle.remove()

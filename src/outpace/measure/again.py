"""Calling the script's model again on what it was last called with, so that the script does not see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.seams.generators import generators_kept
from outpace.seams.host import Host
from outpace.seams.module import Given, ModuleSeam, device_of


class Call(NamedTuple):
    """The model and its inputs in the last step."""

    module: nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    autocast: torch.dtype | None
    """what products are cast to; None: nothing is"""

    def made_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the model makes of other inputs, by the script's precision."""
        device = device_of(self.module)
        with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
            return self.module(*args, **kwargs)


def last_call(host: Host) -> Call | None:
    """What the model was last called with to learn; None where it is gone or was not noted."""
    seam = host.seam(ModuleSeam)
    return _alive(seam.given) if seam is not None else None


def last_judgement(host: Host) -> Call | None:
    """The same of a call in evaluation mode with gradients on."""
    seam = host.seam(ModuleSeam)
    return _alive(seam.judged_on) if seam is not None else None


def _alive(given: Given | None) -> Call | None:
    if given is None:
        return None
    module = given.module()
    args = [value() for value in given.args]
    kwargs = {name: value() for name, value in given.kwargs.items()}
    if module is None or any(value is None for value in (*args, *kwargs.values())):
        return None
    return Call(module, args, kwargs, given.autocast)


@contextmanager
def unseen(host: Host, module: nn.Module) -> Iterator[None]:
    """Generators and buffers are as before afterwards, and the seams look away.

    A graph of the script's that waits for its backward pass may have saved a buffer: that it was changed in
    between is not counted.
    """
    seam = host.seam(ModuleSeam)
    assert seam is not None
    before = [
        (part, name, buffer, buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
        if not buffer.is_inference()
    ]
    buffers = tuple(buffer for _, _, buffer, _ in before)
    try:
        with uncounted(buffers), generators_kept(), seam.looking_away():
            yield
    finally:
        for part, name, buffer, value in before:
            if getattr(part, name, None) is not buffer:
                setattr(part, name, buffer)
            buffer.data.copy_(value)


def uncounted(tensors: tuple[torch.Tensor, ...]) -> AbstractContextManager[object]:
    """What changes tensors inside leaves torch's count of their changes as it is, where torch can do so."""
    try:
        from torch.autograd.grad_mode import _unsafe_preserve_version_counter
    except ImportError:
        return nullcontext()
    return _unsafe_preserve_version_counter(tensors)

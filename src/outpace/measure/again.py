"""Calling the script's model again on what it was last called with, so that the script does not see it."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.seams.generators import generators_kept
from outpace.seams.hooks import has_others
from outpace.seams.host import Host
from outpace.seams.module import Given, ModuleSeam, device_of

GATHERS = (list, dict, set, deque, OrderedDict)
"""kinds of what a part may gather values in"""


class Call(NamedTuple):
    """The model and its inputs in the last step."""

    module: nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    autocast: torch.dtype | None
    """what products are cast to; None: nothing is"""
    times: int
    """that the model was called so since the last backward pass but this, or the step before"""

    def made_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the model makes of other inputs, by the script's precision."""
        device = device_of(self.module)
        with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
            return self.module(*args, **kwargs)


def last_calls(host: Host) -> list[Call | None]:
    """What each model was last called with to learn before the newest backward pass, in the order of that.

    None for one that is gone, or was called on anything but tensors.
    """
    seam = host.seam(ModuleSeam)
    return [_alive(given) for given in seam.given.values()] if seam is not None else []


def last_call(host: Host) -> Call | None:
    """The call of the only model that learns, which can be made again: no hooks but torch's would see it."""
    calls = last_calls(host)
    only = calls[0] if len(calls) == 1 else None
    return None if only is None or has_others(only.module) else only


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
    return Call(module, args, kwargs, given.autocast, given.times)


@contextmanager
def unseen(host: Host, module: nn.Module) -> Iterator[None]:
    """Generators, buffers and what else the parts keep are as before afterwards, and the seams look away.
    What the model prints is not shown.

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
    put_back = [attributes_kept(part) for part in module.modules()]
    try:
        with uncounted(buffers), generators_kept(), seam.looking_away(), redirect_stdout(Hushed()):
            yield
    finally:
        for restore in put_back:
            restore()
        for part, name, buffer, value in before:
            if getattr(part, name, None) is not buffer:
                setattr(part, name, buffer)
            buffer.data.copy_(value)


class Hushed:
    """Stands for ``sys.stdout``: what the thread prints that has made it is dropped, others' is printed."""

    def __init__(self) -> None:
        self.stream, self.thread = sys.stdout, get_ident()

    def write(self, text: str) -> int:
        """As a stream does."""
        return len(text) if get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def attributes_kept(module: nn.Module) -> Callable[[], None]:
    """Gives a part its attributes back as they are now: numbers that it counts up, losses that it gathers."""
    own = vars(module)
    before = dict(own)
    held = [(value, value.copy()) for value in before.values() if type(value) in GATHERS]

    def restore() -> None:
        for name in own.keys() - before.keys():
            del own[name]
        for name, value in before.items():
            if own.get(name) is not value:
                own[name] = value
        for value, content in held:
            value.clear()
            value.extend(content) if hasattr(value, "extend") else value.update(content)

    return restore


def uncounted(tensors: tuple[torch.Tensor, ...]) -> AbstractContextManager[object]:
    """What changes tensors inside leaves torch's count of their changes as it is, where torch can do so."""
    try:
        from torch.autograd.grad_mode import _unsafe_preserve_version_counter
    except ImportError:
        return nullcontext()
    return _unsafe_preserve_version_counter(tensors)

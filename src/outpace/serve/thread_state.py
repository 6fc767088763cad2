"""What torch has for each thread by itself, taken along to a thread that works for another.

Whether gradients are recorded, inference mode, autocast, the default device, and which GPU is current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar, final

import torch

try:
    from torch._C import _len_torch_function_stack as modes
except ImportError:  # pragma: no cover

    def modes() -> int:
        """Those in force, of which a default device is one; it takes far longer to ask for that itself."""
        return 1


CAST = ("cpu", "cuda")
"""devices that autocast is told of"""
CPU = torch.device("cpu")
P = ParamSpec("P")
T = TypeVar("T")


class State(NamedTuple):
    """Of one thread."""

    grad: bool
    inference: bool
    cast: tuple[tuple[bool, torch.dtype], ...]
    keeps_cast: bool
    device: torch.device
    gpu: int | None


def state() -> State:
    """That of the calling thread."""
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return State(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        tuple((torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in CAST),
        torch.is_autocast_cache_enabled(),
        torch.get_default_device() if modes() else CPU,
        torch.cuda.current_device() if cuda else None,
    )


_own = threading.local()
"""``taken_on``: the state that a thread of ours was given last"""


@final
class AsHere:
    """Calls functions, in threads of ours, as if they were called where this is made, and when it is."""

    def __init__(self) -> None:
        self.state = state()

    def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` gives."""
        if getattr(_own, "taken_on", None) != self.state:
            _take_on(self.state)
        if not self.state.inference:
            return work(*args, **kwargs)
        with torch.inference_mode():
            return work(*args, **kwargs)


def _take_on(wanted: State) -> None:
    """All but inference mode, which has an end."""
    torch.set_grad_enabled(wanted.grad)
    for one, (enabled, dtype) in zip(CAST, wanted.cast, strict=True):
        torch.set_autocast_enabled(one, enabled)
        torch.set_autocast_dtype(one, dtype)
    torch.set_autocast_cache_enabled(wanted.keeps_cast)
    if torch.get_default_device() != wanted.device:
        torch.set_default_device(wanted.device)
    if wanted.gpu is not None:
        torch.cuda.set_device(wanted.gpu)
    _own.taken_on = wanted

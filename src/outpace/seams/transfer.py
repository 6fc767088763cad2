"""Copies between host and device, and calls that make the host wait: ``.to()``, ``.item()`` and kin.

Only calls that the script itself makes in its steps count: those inside of an optimizer or a backward
pass belong to it, and so do those in a forward pass but for the script's own lines on a GPU. On a CPU they
cost next to nothing and are counted all the same.
"""

from __future__ import annotations

import functools
import sys
from threading import get_ident
from types import FrameType, MethodType
from typing import Any, final

import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.where import caller, is_user_file

TRANSFERS = ("to", "cuda", "cpu", "copy_")
SYNCS = ("item", "tolist", "numpy")
ON_CUDA = ("__float__", "__int__", "__bool__")
WAITS = ("cuda.synchronize", "cuda.empty_cache")
"""functions of torch's"""
KEPT = ("copy_", "__bool__")
"""never done without: what they give decides what the script does next"""
SCALERS = ("torch.amp.", "torch.cuda.amp.")
"""modules whose reads decide whether an optimizer steps; they are none of the script's own"""
_BUILT: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
MOST_FREED = 1000
"""calls in a step that are done without: a script may wait in a loop for what it reads to change"""
MANY = 256
"""calls in a step from which on they are no longer timed where there is no GPU: to time one takes longer than
it does, and the line that makes them is known by its samples"""
LOOKS = 64
"""calls of which the place is looked up; later ones are only counted and timed"""


@final
class InPlace:
    """A method in the place of another one, which it is equal to.

    Subclasses of tensors are told which method was called, and look it up in tables that were made before it
    was put here, or while it is.
    """

    def __init__(self, original: Any, method: Any) -> None:
        functools.update_wrapper(self, original)
        self.method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        return self if tensor is None else MethodType(self.method, tensor)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        return getattr, (torch.Tensor, self.__wrapped__.__name__)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.__wrapped__)  # type: ignore[attr-defined]


_CALL = InPlace.__call__.__code__


class TransferSeam:
    """Stands at the methods of ``torch.Tensor`` named above."""

    name = "transfer"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.pins = False
        """copy batches from page-locked memory to the device without waiting"""
        self.replaced = Replaced()
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, int] = {}
        self.places: dict[str, dict[str, int]] = {}
        self.reached: dict[str, int] = {}
        """step at which so many calls were reached last"""
        self.left_at: dict[str, int] = {}
        """step from which on a method is torch's own again"""
        self.recent: dict[Any, Any] = {}
        self.step, self.asked = 0, 0
        """calls that were done without in this step"""

    def install(self) -> None:
        """Put the seam in."""
        # To ask whether there is a GPU would start CUDA, before the script forks or chooses one.
        names = [*TRANSFERS, *SYNCS, *(ON_CUDA if _BUILT else ())]
        for name in names:
            self.replaced.put(torch.Tensor, name, functools.partial(self.wrap_method, name))
        for name in WAITS:
            wrap = functools.partial(self.wrap, name, "sync")
            self.replaced.put(torch.cuda, name.removeprefix("cuda."), wrap)

    def remove(self) -> None:
        """Take it out: what torch.Tensor only inherited is inherited again."""
        self.replaced.put_all_back()
        self.reconcile(AS_IS)

    def reconcile(self, setup: Setup) -> None:
        """Take copies and waits away where an experiment asks for it."""
        self.setup = setup
        self.pins = setup.feed.pin and _BUILT
        if not setup.free_transfer and not setup.free_sync:
            self.recent.clear()

    def wrap_method(self, name: str, original: Any) -> InPlace:
        """A method of tensors with its time charged to its phase."""
        phase = "transfer" if name in TRANSFERS else "sync"
        return InPlace(original, self.wrap(name, phase, original))

    def wrap(self, name: str, phase: str, original: Any) -> Any:
        """``original`` with its time charged to ``phase``."""
        seam, phases = self, self.host.phases
        stack = phases.stack
        counts, seconds = self.counts, self.seconds
        counts.setdefault(name, 0)
        seconds.setdefault(name, 0)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            if phases.resting or get_ident() != phases.owner or not seam.counts_here(stack):
                return original(*args, **kwargs)
            if not module_of(sys._getframe(1)).startswith(SCALERS):
                counts[name] += 1
                if counts[name] <= LOOKS:
                    seam.host.guard("transfer", seam.look, name)
                elif counts[name] % MANY == 0:
                    seam.host.guard("transfer", seam.leave, name)
                if seam.setup.free_sync and name in WAITS:
                    return None
                if (seam.setup.free_transfer or seam.setup.free_sync) and args:
                    return seam.free(name, phase, original, args, kwargs)
            if seam.pins and seam.is_copy(name, args, kwargs):
                kwargs["non_blocking"] = True
            phases.push(phase)
            start = phases.mark
            try:
                return original(*args, **kwargs)
            finally:
                phases.pop()
                seconds[name] += phases.mark - start

        return method

    def counts_here(self, stack: list[str]) -> bool:
        """Whether a call is the script's, in a step: outside of all phases, or in its model's forward."""
        if self.host.mode == "startup":
            return False  # a model on its way to the device, tensor by tensor
        frame = of_caller(sys._getframe(2))
        if stack:
            inside = stack[-1] == "forward" and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            return inside and is_user_file(frame.f_code.co_filename)
        return not module_of(frame).startswith("outpace.")

    def leave(self, name: str) -> None:
        """Give a method back that is called again and again in one step."""
        steps = self.host.steps
        waits = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        often = self.reached.get(name) == steps and not waits
        if often and self.replaced.put_back(torch.Tensor, name):
            self.left_at[name] = max(1, steps)
        self.reached[name] = steps

    def is_copy(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call copies a batch that a feed put into page-locked memory, and does not say whether to
        wait. Memory of the script's own may be written to meanwhile.
        """
        source = args[0] if args else None
        return (
            name in ("to", "cuda")
            and len(args) <= 2
            and "non_blocking" not in kwargs
            and isinstance(source, torch.Tensor)
            and not source.is_cuda
            and source.is_pinned()
            and source.untyped_storage().data_ptr() in self.host.pinned
            and not _on_own_stream()
        )

    def look(self, name: str) -> None:
        """Note the line that calls."""
        where = caller()
        if where is not None:
            at = self.places.setdefault(name, {})
            at[where] = at.get(where, 0) + 1

    def free(
        self, name: str, phase: str, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the same call of an earlier step gave, for tensors on their way to or from a GPU.

        A copy passes no gradients on: zeros are made for them.
        """
        tensor = args[0]
        wanted = self.setup.free_transfer if phase == "transfer" else self.setup.free_sync
        is_one = isinstance(tensor, torch.Tensor) and (phase == "transfer" or tensor.is_cuda)
        if self.step != self.host.steps:
            self.step, self.asked = self.host.steps, 0
        self.asked += 1
        if not wanted or not is_one or name in KEPT or self.asked > MOST_FREED:
            return original(*args, **kwargs)
        key = (name, self.asked, tensor.shape, tensor.dtype, tensor.device)
        if key not in self.recent:
            made = original(*args, **kwargs)
            copied = isinstance(made, torch.Tensor)
            if not copied or made.device != tensor.device:
                self.recent[key] = made.detach() if copied else made
            return made
        kept = self.recent[key]
        if isinstance(kept, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
            return Skipped.apply(tensor, kept)  # type: ignore[no-untyped-call]
        return kept


def of_caller(frame: FrameType) -> FrameType:
    """The frame that called what stands in a method's place."""
    return frame.f_back or frame if frame.f_code is _CALL else frame


def module_of(frame: FrameType) -> str:
    """The name of its module."""
    return str(of_caller(frame).f_globals.get("__name__"))


def _on_own_stream() -> bool:
    """Whether a copy is for a stream of the script's own: the step may not wait for that."""
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return started and torch.cuda.current_stream() != torch.cuda.default_stream()


class Skipped(torch.autograd.Function):
    """A copy to another device that was made before."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, ready: torch.Tensor) -> torch.Tensor:
        """``ready`` in place of a copy of ``source``."""
        ctx.like = source.shape, source.dtype, source.device
        return ready.view_as(ready)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[torch.Tensor, None]:
        """No gradient for the source."""
        shape, dtype, device = ctx.like
        return torch.zeros(shape, dtype=dtype, device=device), None

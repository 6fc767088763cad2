"""Copies between host and device, and calls that make the host wait: ``.to()``, ``.item()`` and kin.

Only calls that the script itself makes count: those inside of an optimizer, a forward or a
backward pass belong to it. On a CPU they cost next to nothing and are counted all the same.
"""

from __future__ import annotations

import functools
from threading import get_ident
from types import MethodType
from typing import Any, final

import torch

from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.where import caller

TRANSFERS = ("to", "cuda", "copy_")
SYNCS = ("item", "tolist", "cpu", "numpy")
ON_CUDA = ("__float__", "__int__", "__bool__")
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

    def __hash__(self) -> int:
        return hash(self.__wrapped__)  # type: ignore[attr-defined]


class TransferSeam:
    """Stands at the methods of ``torch.Tensor`` named above."""

    name = "transfer"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.pins = False
        """copy batches from page-locked memory to the device without waiting"""
        self.patched: dict[str, bool] = {}
        self.synchronize: Any = None
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, int] = {}
        self.places: dict[str, dict[str, int]] = {}
        self.pageable = 0
        self.recent: dict[Any, Any] = {}

    def install(self) -> None:
        """Put the seam in."""
        if self.patched:
            return
        names = [*TRANSFERS, *SYNCS, *(ON_CUDA if torch.cuda.is_available() else ())]
        for name in names:
            self.patched[name] = name in torch.Tensor.__dict__
            phase = "transfer" if name in TRANSFERS else "sync"
            original = getattr(torch.Tensor, name)
            setattr(torch.Tensor, name, InPlace(original, self.wrap(name, phase, original)))
        self.synchronize = torch.cuda.synchronize
        torch.cuda.synchronize = self.wrap("synchronize", "sync", self.synchronize)

    def remove(self) -> None:
        """Take it out: what torch.Tensor only inherited is inherited again."""
        for name, was_own in self.patched.items():
            original = getattr(torch.Tensor, name).__wrapped__
            if was_own:
                setattr(torch.Tensor, name, original)
            else:
                delattr(torch.Tensor, name)
        self.patched = {}
        if self.synchronize is not None:
            torch.cuda.synchronize = self.synchronize
            self.synchronize = None

    def reconcile(self, setup: Setup) -> None:
        """Take copies and waits away where an experiment asks for it."""
        self.setup = setup
        self.pins = setup.feed.pin and torch.cuda.is_available()
        if not setup.free_transfer and not setup.free_sync:
            self.recent.clear()

    def wrap(self, name: str, phase: str, original: Any) -> Any:
        """``original`` with its time charged to ``phase``."""
        seam, phases = self, self.host.phases
        stack = phases.stack
        counts, seconds = self.counts, self.seconds
        counts.setdefault(name, 0)
        seconds.setdefault(name, 0)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            if stack or phases.resting or get_ident() != phases.owner:
                return original(*args, **kwargs)
            counts[name] += 1
            if counts[name] <= LOOKS:
                seam.look(name, args)
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
        )

    def look(self, name: str, args: tuple[Any, ...]) -> None:
        """Note the line that calls, and whether it copies from pageable memory."""
        where = caller()
        if where is not None:
            at = self.places.setdefault(name, {})
            at[where] = at.get(where, 0) + 1
        if name in TRANSFERS and args and isinstance(args[0], torch.Tensor):
            source = args[0]
            if torch.cuda.is_available() and not source.is_cuda and not source.is_pinned():
                self.pageable += 1

    def free(
        self, name: str, phase: str, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The newest result of the same call again, for tensors on their way to or from a GPU."""
        tensor = args[0]
        wanted = self.setup.free_transfer if phase == "transfer" else self.setup.free_sync
        if not wanted or not isinstance(tensor, torch.Tensor) or name == "copy_":
            return original(*args, **kwargs)
        key = (name, tensor.shape, tensor.dtype, tensor.device, str(args[1:]), str(kwargs))
        if key not in self.recent:
            self.recent[key] = original(*args, **kwargs)
        return self.recent[key]

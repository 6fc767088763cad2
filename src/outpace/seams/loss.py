"""The backward pass: what it is called on is the loss, whose value is kept without waiting for it.

Of a loss that a GradScaler has scaled, the value before it.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any

import torch
from torch.amp import GradScaler

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.setup import Setup


class LossSeam:
    """Stands at ``torch.autograd.backward``, through which ``Tensor.backward`` goes, and at a GradScaler's
    ``scale`` and ``update``.
    """

    name = "loss"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.replaced = Replaced()
        self.scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
        """the loss that was scaled last, and what it was before"""
        self.inside = False

    def install(self) -> None:
        """Put the seam in."""
        self.replaced.put(torch.autograd, "backward", self._wrap_backward)
        self.replaced.put(GradScaler, "scale", self._wrap_scale)
        self.replaced.put(GradScaler, "update", self._wrap_update)

    def _wrap_backward(self, original: Any) -> Any:
        seam, host, phases = self, self.host, self.host.phases

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if phases.resting or seam.inside:
                return original(tensors, *args, **kwargs)
            if get_ident() != phases.owner:
                host.backwards_elsewhere += not host.steps
                return original(tensors, *args, **kwargs)
            seam.inside = True
            phases.push("backward")
            depth = len(phases.stack)
            try:
                original(tensors, *args, **kwargs)
            finally:
                seam.inside = False
                phases.unwind(depth - 1)
            try:
                wanted = host.in_group + 1 >= host.group
                loss = seam.loss(tensors) if wanted or host.on_backward is not None else None
                if host.on_backward is not None and loss is not None:
                    host.on_backward(loss)
                host.saw_backward(loss if wanted else None)
            except Exception as error:
                host.fail("loss", error)
            return None

        backward.__doc__ = original.__doc__
        return backward

    def _wrap_scale(self, original: Any) -> Any:
        seam = self

        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            before = scalar(outputs)
            if before is not None and result is not outputs:
                seam.scaled = (weakref.ref(result), before)
            return result

        scale.__doc__ = original.__doc__
        return scale

    def _wrap_update(self, original: Any) -> Any:
        """A scaler that met infinite gradients leaves its optimizer's step out."""
        host = self.host

        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, *args, **kwargs)
            if host.unstepped and get_ident() == host.phases.owner:
                host.guard("loss", host.saw_no_optimizer_step)
            return result

        return update

    def loss(self, tensors: Any) -> torch.Tensor | None:
        """What backward was called on as one number, before it was scaled; None where it is not one."""
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if self.scaled is not None and self.scaled[0]() is first:
            return self.scaled[1]
        return scalar(first)

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()
        self.scaled = None

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""


def scalar(loss: Any) -> torch.Tensor | None:
    """A loss without its graph, if it is one number."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        return None
    value = apart(loss)
    return value.reshape(()) if value.dim() else value


def apart(loss: torch.Tensor) -> torch.Tensor:
    """Its value without its graph, nor in memory that a CUDA graph uses again at its next replay."""
    value = loss.detach()
    return value.clone() if value.is_cuda else value

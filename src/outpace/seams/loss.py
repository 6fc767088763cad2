"""The backward pass: what it is called on is the loss, whose value is kept without waiting for it."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import torch

from outpace.seams.host import Host
from outpace.seams.setup import Setup


class LossSeam:
    """Stands at ``torch.autograd.backward``, through which ``Tensor.backward`` goes too."""

    name = "loss"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.original: Any = None
        self.inside = False

    def install(self) -> None:
        """Put the seam in."""
        if self.original is not None:
            return
        self.original = original = torch.autograd.backward
        seam, host, phases = self, self.host, self.host.phases

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if phases.resting or seam.inside or get_ident() != phases.owner:
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
                loss = scalar(tensors) if wanted or host.on_backward is not None else None
                if host.on_backward is not None and loss is not None:
                    host.on_backward(loss)
                host.saw_backward(loss if wanted else None)
            except Exception as error:
                host.fail("loss", error)
            return None

        backward.__doc__ = original.__doc__
        torch.autograd.backward = backward

    def remove(self) -> None:
        """Take it out."""
        if self.original is not None:
            torch.autograd.backward = self.original
            self.original = None

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""


def scalar(tensors: Any) -> torch.Tensor | None:
    """The loss out of what backward was called on: the first tensor, if it is one number."""
    first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
    if not isinstance(first, torch.Tensor) or first.numel() != 1:
        return None
    value = first.detach()
    return value.reshape(()) if value.dim() else value

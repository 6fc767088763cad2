"""The loss of each validation: what torch's loss functions give while the script validates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from outpace.seams.host import Host

LOSSES = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "gaussian_nll_loss",
    "kl_div",
)
"""of torch.nn.functional; the modules call them too"""


class ValidationLosses:
    """Mean loss of each validation; the functions are watched only while there is one."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.passes: list[tuple[int, Any]] = []
        """samples trained on by then, and the loss: a number, or a tensor that is not read yet"""
        self.total: Any = 0.0
        self.rows = 0
        self.originals = {name: getattr(functional, name) for name in LOSSES}
        # The same functions each time: torch.compile compiles anew for other ones.
        self.watched = {name: self._watched(f) for name, f in self.originals.items()}
        host.on_validation = self.on_validation

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def loss(*args: Any, **kwargs: Any) -> Any:
            out = original(*args, **kwargs)
            if not torch.compiler.is_compiling() and "validation" not in self.host.broken:
                self.host.guard("validation", self.note, args, kwargs, out)
            return out

        return loss

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A loss was computed; one that is not reduced to one number is left out."""
        if isinstance(out, torch.Tensor) and out.dim() == 0:
            given = args[0] if args else None
            rows = given.shape[0] if isinstance(given, torch.Tensor) and given.dim() else 1
            value = out.detach()
            if kwargs.get("reduction") == "sum":
                value = value / _losses(args)
            self.total = self.total + rows * (float(value) if value.device.type == "cpu" else value)
            self.rows += rows

    def on_validation(self, begins: bool) -> None:
        """The script begins to validate, or goes on training."""
        before, after = (self.originals, self.watched) if begins else (self.watched, self.originals)
        for name in LOSSES:
            if getattr(functional, name) is before[name]:
                setattr(functional, name, after[name])
        if not begins and self.rows:
            self.passes.append((self.host.samples, self.total / self.rows))
            self.total, self.rows = 0.0, 0

    def forget(self) -> None:
        """Those by now were of another training."""
        self.passes, self.total, self.rows = [], 0.0, 0

    def end(self) -> None:
        """Put everything back."""
        self.host.on_validation = None
        self.on_validation(False)

    def read(self) -> list[tuple[int, float]]:
        """All so far, one that is under way too."""
        under_way = [(self.host.samples, self.total / self.rows)] if self.rows else []
        return [(samples, float(value)) for samples, value in self.passes + under_way]


def _losses(args: tuple[Any, ...]) -> int:
    """How many losses were added up: one for each class that is a target, else for each element."""
    tensors = [arg for arg in args[:2] if isinstance(arg, torch.Tensor)]
    classes = [tensor for tensor in tensors[1:] if not tensor.is_floating_point()]
    return max(1, (classes or tensors)[0].numel()) if tensors else 1

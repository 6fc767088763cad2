"""The loss of each validation: what torch's loss functions give while the script validates.

Where it judges by batches of the training's loader, those are left out.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.nn import functional

from outpace.measure.seen_calls import SeenCalls
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
    """Mean loss of each validation; the functions are seen only while there is one."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.passes: list[tuple[int, Any]] = []
        """samples trained on by then, and the loss: a number, or a tensor that is not read yet"""
        self.total: Any = 0.0
        self.rows = 0
        self.seen = [
            SeenCalls(function, self._told)
            for function in (getattr(functional, name) for name in LOSSES)
            if isinstance(function, FunctionType) and function.__closure__ is None
        ]
        host.on_validation = self.on_validation

    def _told(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if not torch.compiler.is_compiling() and "validation" not in self.host.broken:
            self.host.guard("validation", self.note, args, kwargs, out)

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A loss was computed; one that is not reduced to one number is left out."""
        if isinstance(out, torch.Tensor) and out.dim() == 0 and not _is_fake(out):
            given = args[0] if args else None
            rows = given.shape[0] if isinstance(given, torch.Tensor) and given.dim() else 1
            value = out.detach()
            if kwargs.get("reduction") == "sum":
                value = value / _losses(args)
            self.total = self.total + rows * (float(value) if value.device.type == "cpu" else value)
            self.rows += rows

    def on_validation(self, begins: bool, own: bool = False) -> None:
        """The script begins to validate, or goes on training; ``own``: after judging a batch of it."""
        for calls in self.seen:
            (calls.begin if begins else calls.end)()
        if not begins and self.rows:
            if not own:
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


def _is_fake(tensor: torch.Tensor) -> bool:
    """Whether it has no value: torch.compile tries out what it is about to compile."""
    return type(tensor).__module__.startswith("torch._subclasses")


def _losses(args: tuple[Any, ...]) -> int:
    """How many losses were added up: one for each class that is a target, else for each element."""
    tensors = [arg for arg in args[:2] if isinstance(arg, torch.Tensor)]
    classes = [tensor for tensor in tensors[1:] if not tensor.is_floating_point()]
    return max(1, (classes or tensors)[0].numel()) if tensors else 1

"""Operators in float64 of a model that is not: by whose numbers, where, and what float32 would spare.

What it would spare is tried: on a CPU each such operator is run once more as it was and once in float32,
where nothing but its result shows that it ran. How much dearer float64 is differs: twice for what is
bound by memory, more for attention, whose kernels it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import nn

from outpace.measure.dispatch import address_of, name_of, tensors_in
from outpace.measure.flops import is_view
from outpace.seams.where import place

MOST_S = 3.0
"""spent on trying"""
MOST_BYTES = 1 << 28
"""that an operator to be tried reads and writes: that much memory may be short"""
TRIES = 2
TELLING = 0.5
"""share of the time of all that those tried have to be of"""


class Doubled:
    """Counts the operators in float64 of a step."""

    def __init__(self, root: nn.Module | None) -> None:
        self.root = root
        own = next(root.parameters(), None) if root is not None else None
        self.whole = own is not None and own.dtype == torch.float64
        """the model is in float64 itself, and nothing is counted"""
        self.seconds = 0.0
        """of all of them"""
        self.tried_s = self.double_s = self.single_s = 0.0
        """of those that were tried: in the step itself, once more, and in float32"""
        self.spent_s = 0.0
        self.met_bytes = 0
        """the most to come to be in float64 at once in the forward pass"""
        self.where: str | None = None
        self.by = ""
        """what brought float64 there: an attribute of a module of the model; empty where it is none"""

    def see(
        self, operator: Any, args: Any, kwargs: Mapping[str, Any], out: Any, took_s: float
    ) -> None:
        """Count an operator that has just run."""
        tensors = tensors_in((args, kwargs, out))
        if self.whole or torch.float64 not in dtypes_in(tensors):
            return
        self.seconds += took_s
        if not all(each.device.type == "cpu" for each in tensors):
            return  # there it is only launched
        if name_of(operator) == "_to_copy" and len(dtypes_in(tensors)) > 1:
            # From float64 or to it: in float32 there would be none.
            self.tried_s, self.double_s = self.tried_s + took_s, self.double_s + took_s
        elif self.spent_s < MOST_S and size_of(tensors) <= MOST_BYTES and _repeatable(operator):
            begun = perf_counter()
            try:
                double_s = _quickest(operator, args, kwargs)
                single_s = _quickest(operator, in_float32(args), in_float32(kwargs))
            except Exception:
                return  # float32 is not for it
            finally:
                self.spent_s += perf_counter() - begun
            self.tried_s += took_s
            self.double_s, self.single_s = self.double_s + double_s, self.single_s + single_s

    def meet(self, args: Any, out: Any, frame: FrameType) -> None:
        """Note an operator of the forward pass that gives float64 and was given another precision too."""
        if torch.float64 not in dtypes_in(out) or not dtypes_in(args) - {torch.float64}:
            return
        size = size_of(tensors_in(out))
        if size > self.met_bytes:
            self.met_bytes, self.where = size, place(frame)
            self.by = next(iter(self._holders(args)), "")

    def spared(self) -> float | None:
        """Share of their time that float32 would spare; None where too few could be tried."""
        if not self.double_s or self.tried_s < TELLING * self.seconds:
            return None
        return max(0.0, 1.0 - self.single_s / self.double_s)

    def _holders(self, args: Any) -> Iterator[str]:
        """Attributes of modules of the model that hold the float64 among ``args``."""
        held = {address_of(each) for each in tensors_in(args) if each.dtype == torch.float64} - {0}
        for module in self.root.modules() if self.root is not None and held else ():
            for name, value in (*vars(module).items(), *module.named_buffers(recurse=False)):
                if not name.startswith("_") and held & {
                    address_of(each) for each in tensors_in(value)
                }:
                    yield f"{type(module).__name__}.{name}"


def dtypes_in(value: Any) -> set[torch.dtype]:
    """Those of the floating-point tensors of more than one number in it."""
    return {t.dtype for t in tensors_in(value) if t.is_floating_point() and t.numel() > 1}


def in_float32(value: Any) -> Any:
    """The same arguments with float32 in the place of float64."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if isinstance(value, (tuple, list)):
        return type(value)([in_float32(each) for each in value])
    if isinstance(value, Mapping):
        return {name: in_float32(each) for name, each in value.items()}
    return torch.float32 if value is torch.float64 else value


def size_of(tensors: list[torch.Tensor]) -> int:
    """Bytes of their numbers; of sparse ones as if they were not."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _repeatable(operator: Any) -> bool:
    """Whether to run an operator again shows nowhere.

    A batch norm moves its running statistics, of which its schema says nothing.
    """
    drawing = torch.Tag.nondeterministic_seeded in operator.tags and not _draws_nothing(operator)
    moving = any("running" in each.name for each in operator._schema.arguments)
    return not (drawing or moving or operator._schema.is_mutable or is_view(operator))


def _draws_nothing(operator: Any) -> bool:
    """Attention draws for its dropout, and on a CPU its kernel has none."""
    return "_for_cpu" in operator._schema.name


def _quickest(operator: Any, args: Any, kwargs: Any) -> float:
    quickest = float("inf")
    with torch.no_grad():
        for _ in range(TRIES):
            begun = perf_counter()
            operator(*args, **kwargs)
            quickest = min(quickest, perf_counter() - begun)
    return quickest

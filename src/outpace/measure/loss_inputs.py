"""What a loss should not be given: probabilities for logits, and shapes that spread over each other.

Where numbers come from is read in their graph, and what becomes of differences is followed by weak
references: nothing of a model is held.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import torch

from outpace.measure.dispatch import tensors_in
from outpace.measure.made_by import kind, made_by
from outpace.seams.where import caller

COPIES = {"ToCopy", "Clone"}
VIEWS = {"View", "UnsafeView", "ReshapeAlias"}
AS_THEY_ARE = {
    *(*COPIES, *VIEWS, "Expand", "Alias", "Squeeze", "Unsqueeze", "Permute", "Transpose", "T"),
    *("Select", "Slice", "Split", "SplitWithSizes", "Unbind", "Cat", "Stack", "_DDPSink"),
    *("Index", "IndexSelect", "MaskedSelect", "Clamp", "ClampMin", "ClampMax", "NanToNum"),
}
"""functions whose numbers are those that they were given, or as good as those"""
WITHIN = {"CompiledFunction", "CheckpointFunction"}
"""functions in which nobody sees what made the numbers"""
LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss")
MET = ("sub", "rsub", "mul", *LOSSES)
"""operators in which predictions meet targets"""
ON_THE_WAY = (
    *("abs", "pow", "sqrt", "neg", "add", "sub", "rsub", "mul", "div", "relu", "clamp"),
    *("clamp_min", "_to_copy", "clone", "sum", "mean"),
)
"""what differences go through to a loss; others, as exp, have an own idea of each pair"""
FEWEST_LOOKS = 3
"""at steps whose losses are given such: one may be so by chance"""
FEWEST_NUMBERS = 32
SOME_ROWS = 64
ROUNDING = 1e-2
"""that a row of probabilities may be off from 1, also in half precision"""


class LossInputs:
    """The line of such losses: ``softmax_twice``, ``sigmoid_twice``, ``crossed``."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, str | None]] = {}
        """the line, by the step that it was seen in"""
        self._pairs: deque[tuple[weakref.ref[torch.Tensor], str | None]] = deque(maxlen=4)
        """what came of each prediction beside all targets, and the line where"""

    def see(self, name: str, args: tuple[Any, ...], out: Any, *, batch: int, step: int) -> None:
        """Look at one operator of a forward pass; ``batch``: samples in it."""
        if name == "_log_softmax":
            if _comes_from({"Softmax", *WITHIN}, args[0]) and _adds_up(args[0], args[1]):
                self._note("softmax_twice", step, caller())
        elif name == "binary_cross_entropy_with_logits":
            if _comes_from({"Sigmoid"}, args[0]):
                self._note("sigmoid_twice", step, caller())
        elif isinstance(out, torch.Tensor):
            self._follow(name, args, out, step)
            if name in MET and _crossed(args, batch):
                if name in LOSSES and not out.dim():  # of which torch warns itself
                    self._note("crossed", step, caller())
                elif not _of_a_row(_column(args)):
                    self._pairs.append((weakref.ref(out), caller()))

    def _follow(self, name: str, args: tuple[Any, ...], out: torch.Tensor, step: int) -> None:
        """See whether all pairs become a loss as they are; what some are chosen or weighted by means them."""
        given = tensors_in(args) if name != "detach" else []  # as autograd does to keep a result
        for pair in list(self._pairs):
            made, where = pair
            if not any(one is made() for one in given):
                continue
            self._pairs.remove(pair)
            if name in ON_THE_WAY and all(one is made() or not one.dim() for one in given):
                if out.dim():
                    self._pairs.append((weakref.ref(out), where))
                else:
                    self._note("crossed", step, where)

    def where(self, what: str) -> str | None:
        """The line of what was so in a few steps; empty where no frame is the script's."""
        seen = self._seen.get(what, {})
        return (next(iter(seen.values())) or "") if len(seen) >= FEWEST_LOOKS else None

    def _note(self, what: str, step: int, where: str | None) -> None:
        self._seen.setdefault(what, {}).setdefault(step, where)


def _comes_from(kinds: set[str], given: torch.Tensor) -> bool:
    """Whether all that learns of a tensor's numbers is what functions of these kinds made."""
    makers = {kind(one) for one in made_by(given, lambda one: kind(one) in AS_THEY_ARE)}
    return bool(makers) and makers <= kinds


def _adds_up(scores: torch.Tensor, dim: int) -> bool:
    """Whether numbers are no less than 0, and each row adds up to 1."""
    if scores.numel() < FEWEST_NUMBERS or scores.shape[dim] < 2:
        return False
    some = scores.detach().movedim(dim, -1).reshape(-1, scores.shape[dim])[:SOME_ROWS].float()
    return bool((some >= 0).all()) and bool(((some.sum(-1) - 1).abs() < ROUNDING).all())


def _crossed(args: tuple[Any, ...], batch: int) -> bool:
    """Whether predictions in a column and targets in a row, one a sample, give a number for each pair.

    What learns is on one side alone: pairs of predictions, or of targets, are meant so; and so is one of two
    that were both given a dimension for it.
    """
    if len(args) < 2 or not all(isinstance(each, torch.Tensor) for each in args[:2]):
        return False
    one, other = args[:2]
    if batch < 2 or one.requires_grad == other.requires_grad:
        return False
    if max(one.dim(), other.dim()) != 2 or {*one.shape, *other.shape} - {1} != {batch}:
        return False
    if one.dim() == other.dim() and one.shape != other.shape:
        return False
    return {_own(one), _own(other)} == {(batch, 1), (1, batch)}


def _own(given: torch.Tensor) -> tuple[int, ...]:
    """A tensor's sizes in two dimensions before it was spread: losses of torch do that before they differ."""
    spread = _spread(given)
    if spread is not None:
        own = tuple(map(int, spread._saved_self_sym_sizes))
    else:
        both = zip(given.shape, given.stride(), strict=True)
        own = tuple(size if stride else 1 for size, stride in both)
    return (1,) * (2 - len(own)) + own


def _spread(given: torch.Tensor) -> Any:
    """The function that spread what learns, also where it was cast since; None where none did."""
    makers = made_by(given, lambda one: kind(one) in COPIES)
    return next((one for one in makers if kind(one) == "Expand"), None)


def _column(args: tuple[Any, ...]) -> torch.Tensor:
    """That of two operands which is one."""
    one, other = args[:2]
    found: torch.Tensor = one if _own(one)[0] > 1 else other
    return found


def _of_a_row(column: torch.Tensor) -> bool:
    """Whether a column was a row that was given a dimension, so that pairs are meant.

    A part of a column, or one that was spread, was none.
    """
    if not column.requires_grad:
        base = column._base
        return base is not None and (base.shape[1:] != (1,) or base.shape == column.shape)
    makers = made_by(column, lambda one: kind(one) in {*COPIES, "Expand", "Alias"})
    return any(kind(one) == "Unsqueeze" or _was_flat(one) for one in makers)


def _was_flat(view: Any) -> bool:
    return kind(view) in VIEWS and len(view._saved_self_sym_sizes) == 1

"""sequence_length: sequences of tokens are short at the begin, and as long as they are at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.seams.batch import map_tensors, tensors_in
from outpace.train.layers import traceless
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.class_prior import ignored

if TYPE_CHECKING:
    from outpace.train.run import Run

GRAIN = 8
"""lengths are multiples of it, as tensor cores want"""


@final
class SequenceLength(Strategy):
    """Sequences are cut to an eighth of their length at first, and are whole when 30 % is used.

    What: of each batch the tokens behind ``first + (1 - first) u / until`` of the length are left out,
    u the share of the budget that is used, in multiples of eight. All that is as long along its second
    dimension as the tokens (targets, masks) is cut alike. A batch that would have no target left which the
    loss does not ignore stays whole. Validation sees whole sequences.
    Helps: language models: steps are cheaper at first, attention by the square, and large rates blow up
    less often, as long sequences make for the extreme gradients of the first steps.
    Harms: tokens that were cut off are not seen in that epoch. Where what is to be told stands at the
    end of a sequence, as with the class of a text or the answer to a prompt, short ones teach what is wrong,
    or nothing: where the first batch has no loss once it is cut, it is refused.
    Source: Li, Zhang and He 2022, arXiv 2108.06084 (the length grows in a line there too).
    """

    name = "sequence_length"
    needs = ("an end",)

    def __init__(self, first: float = 0.125, *, until: float = 0.3) -> None:
        if not (0.0 < first < 1.0 and 0.0 < until <= 1.0):
            raise UsageError(f"first={first:g}, until={until:g}", "both are shares")
        self.first, self.until = first, until

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.until

    def begin(self, run: Run) -> None:
        """Try the shortest."""
        if run.resumed:
            return
        batch = run.train.peek(1)[0]
        whole = length_of(batch)
        if whole is None:
            raise UsageError(
                "sequence_length: batches hold no tokens, integers of two dimensions",
                "leave it out",
            )
        length = self.length(whole, 0.0)
        try:
            with traceless(run.module), run.objective.kept():
                loss = float(run.objective(run.module, cut(batch, whole, length)))
        except (RuntimeError, ValueError, IndexError) as error:
            raise UsageError(
                f"sequence_length: {length} of {whole} tokens do not go through the model: {error}",
                "leave it out where lengths are given beside the tokens, or are part of the model",
            ) from error
        if not math.isfinite(loss):
            raise UsageError(
                f"sequence_length: the loss of {length} of {whole} tokens is {loss:g}",
                "leave it out where the loss ignores what comes first in a sequence, such as prompts",
            )
        run.note(
            f"sequence_length: sequences are cut to {length} of {whole} tokens, and whole from "
            f"{self.until:.0%} of the budget on"
        )

    def batch(self, run: Run, batch: Any) -> Any:
        """Cut it."""
        used = run.clock.used
        whole = length_of(batch) if used < self.until else None
        if whole is None:
            return None
        short = cut(batch, whole, self.length(whole, used))
        return None if emptied(batch, short, ignored(run.objective.loss)) else short

    def more(self) -> float:
        """Times as many steps in the same time, where a step takes as long as it has tokens."""
        return 1.0 - self.until + self.until * math.log(1.0 / self.first) / (1.0 - self.first)

    def length(self, whole: int, used: float) -> int:
        """At a share of the budget that is used."""
        share = self.first + (1.0 - self.first) * min(1.0, used / self.until)
        return min(whole, max(GRAIN, int(whole * share) // GRAIN * GRAIN))


def length_of(batch: Any) -> int | None:
    """Of the tokens in a batch."""
    for tensor in tensors_in(batch):
        if tensor.dim() == 2 and not tensor.is_floating_point():
            return tensor.shape[1]
    return None


def cut(batch: Any, whole: int, length: int) -> Any:
    """A batch with all that is ``whole`` long cut to ``length``."""

    def first(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2 or tensor.shape[1] != whole:
            return tensor
        return tensor[:, :length].contiguous()

    return map_tensors(batch, first)


def emptied(batch: Any, short: Any, ignore: int) -> bool:
    """Whether all that is left of something are targets that the loss ignores, and there were others."""
    for whole, left in zip(tensors_in(batch), tensors_in(short), strict=True):
        if whole is not left and not whole.is_floating_point():
            before, after = (each.long() != ignore for each in (whole, left))  # bytes have no -100
            if not after.any() and before.any():
                return True
    return False

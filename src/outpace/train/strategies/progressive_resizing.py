"""progressive_resizing: images are small at the begin, and as they are at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.seams.batch import map_tensors, tensors_in
from outpace.train.layers import traceless
from outpace.train.objective import PAIRS
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

GRAIN = 8
"""sides stay multiples of it where they are, as nets that halve them thrice want"""


@final
class ProgressiveResizing(Strategy):
    """Images begin at half of their side and reach the whole of it when 70 % of the budget is used.

    What: batches are made smaller on the device by the mean over areas, from ``first`` of their height
    and width on, in ``sizes`` steps, the whole one from ``until`` of the budget on. What has the same
    height and width goes with them: masks (numbers of classes) by the nearest pixel. Validation sees
    whole images. Before the first step each size is tried on the model.
    Helps: convolutional nets: an image of half the side takes a quarter of the time, and what is learnt
    of it holds for larger ones.
    Harms: where what is to be told is a few pixels wide. Targets in pixels (key points, boxes, optical
    flow) stay as they are, and would be learnt at a wrong scale: several numbers a sample that are no
    image, some beyond 1, are refused; shares of the side do. Statistics of BatchNorm are those of small
    images until the end, so that validations in the middle look worse than they need be. Where input
    is what a step waits for, nothing is gained.
    Source: Howard 2018, "Training ImageNet in 3 hours for 25 minutes" (DAWNBench); Touvron et al. 2019,
    arXiv 1906.06423; the course: Composer's ProgressiveResizing.
    """

    name = "progressive_resizing"
    needs = ("an end",)

    def __init__(self, first: float = 0.5, *, until: float = 0.7, sizes: int = 4) -> None:
        if not (0.0 < first < 1.0 and 0.0 < until <= 1.0 and sizes > 1):
            raise UsageError(
                f"first={first:g}, until={until:g}, sizes={sizes}", "shares, and 2 sizes or more"
            )
        self.first, self.until, self.sizes = first, until, sizes

    @property
    def unfolds(self) -> float:
        """Share of the budget."""
        return self.until

    def begin(self, run: Run) -> None:
        """Try each size."""
        if run.resumed:
            return
        batch = run.train.peek(1)[0]
        whole = side_of(batch)
        if whole is None:
            raise UsageError(
                "progressive_resizing: batches hold no images, a floating tensor of four dimensions",
                "make numbers of bytes in after=, or leave it out",
            )
        if (largest := pixels_in(batch, whole)) is not None:
            raise UsageError(
                f"progressive_resizing: targets are numbers of up to {largest:.3g}, which may be in pixels "
                "of images that become smaller",
                "give them as shares of the side, or leave it out",
            )
        sides = [smaller_side(whole, self.share(level)) for level in range(self.sizes)]
        for side in sides[:-1]:
            try:
                with traceless(run.module), run.objective.kept():
                    run.objective(run.module, resized(batch, whole, side))
            except (RuntimeError, ValueError) as error:
                raise UsageError(
                    f"progressive_resizing: images of {told(side)} do not go through the model: {error}",
                    "have it pool to one size before its linear layers (AdaptiveAvgPool2d), "
                    "or leave it out",
                ) from error
        different = ", ".join(dict.fromkeys(map(told, sides)))
        run.note(
            f"progressive_resizing: images are {different}, the last from {self.until:.0%} of the "
            "budget on"
        )

    def batch(self, run: Run, batch: Any) -> Any:
        """Make it smaller."""
        level = int(run.clock.used / self.until * (self.sizes - 1))
        whole = side_of(batch) if level < self.sizes - 1 else None
        return whole and resized(batch, whole, smaller_side(whole, self.share(level)))

    def more(self) -> float:
        """Times as many steps in the same time, where a step takes as long as it has pixels."""
        small = [self.share(level) ** -2 for level in range(self.sizes - 1)]
        return 1.0 - self.until + self.until * sum(small) / len(small)

    def share(self, level: int) -> float:
        """Of the side, at the first, second ... of the sizes."""
        return self.first + (1.0 - self.first) * level / (self.sizes - 1)


def side_of(batch: Any) -> tuple[int, int] | None:
    """Height and width of a batch of images."""
    for tensor in tensors_in(batch):
        if tensor.dim() == 4 and tensor.is_floating_point():
            return tensor.shape[2], tensor.shape[3]
    return None


def pixels_in(batch: Any, whole: tuple[int, int]) -> float | None:
    """The largest of targets that may be places in images: several numbers a sample, some beyond 1."""
    pair = isinstance(batch, PAIRS) and len(batch) == 2
    for tensor in tensors_in(batch[1] if pair else batch):
        several = tensor.dim() > 1 and tensor.shape[-1] > 1 and tensor.numel()
        if several and tensor.is_floating_point() and tensor.shape[-2:] != whole:
            largest = float(tensor.abs().max())
            if largest > 1.0:
                return largest
    return None


def smaller_side(whole: tuple[int, int], share: float) -> tuple[int, int]:
    """A share of height and width, as multiples of the power of two that they are, up to ``GRAIN``."""
    height, width = (
        max(1, round(side * share / grain)) * grain
        for side, grain in ((side, min(GRAIN, side & -side)) for side in whole)
    )
    return height, width


def resized(batch: Any, whole: tuple[int, int], side: tuple[int, int]) -> Any:
    """A batch with all that is of the size ``whole`` made of the size ``side``."""

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() not in (3, 4) or tensor.shape[-2:] != whole:
            return tensor
        if tensor.is_floating_point():
            return F.adaptive_avg_pool2d(tensor, side)
        rows, columns = (
            torch.arange(to, device=tensor.device) * of // to + of // to // 2
            for of, to in zip(whole, side, strict=True)
        )
        return tensor[..., rows[:, None], columns]

    return map_tensors(batch, resize)


def told(side: tuple[int, int]) -> str:
    """``24 x 24``."""
    return f"{side[0]} x {side[1]}"

"""channels_last: images lie in memory with their channels innermost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.hooks import RemovableHandle

from outpace.errors import UsageError
from outpace.seams.batch import map_tensors
from outpace.seams.layout import as_rows, lay_out, to_channels_last
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class ChannelsLast(Strategy):
    """Images, and the weights of convolutions that look at them, lie with their channels innermost.

    What: `torch.channels_last` for weights of four dimensions, what the optimizer keeps of them, and
    batches of images. What the model gives, and afterwards its weights, lie as they would. Values are
    the same; sums are made in another order.
    Helps: convolutions whose kernels want this order and turn all they are given otherwise: on CPUs, and
    with half precision on GPUs.
    Harms: layers that want the other order turn images back and forth.
    Source: torch's tutorial "Channels Last Memory Format in PyTorch".
    """

    name = "channels_last"
    sets = ("the order in memory",)
    whole = "weights of shards lie in rows"

    def __init__(self) -> None:
        self.laid = False
        self.hook: RemovableHandle | None = None

    def prepare(self, run: Run) -> None:
        """Lay out what there is."""
        weights = [weight for weight in run.module.parameters() if weight.dim() == 4]
        if not weights:
            raise UsageError(
                "channels_last: no weight of the model is of four dimensions", "leave it out"
            )
        self.laid = not all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)
        self.hook = run.module.register_forward_hook(given)
        self.lay(run)

    def begin(self, run: Run) -> None:
        """What came from a checkpoint may lie otherwise."""
        self.lay(run)

    def batch(self, run: Run, batch: Any) -> Any:
        """Its images."""
        return map_tensors(batch, to_channels_last)

    def over(self, run: Run) -> None:
        """Leave weights as they came."""
        if self.hook is not None:
            self.hook.remove()
        if self.laid:
            lay_out(run.module, [run.optimizer], channels_last=False)

    def lay(self, run: Run) -> None:
        """Channels innermost."""
        lay_out(run.module, [run.optimizer], channels_last=True)


def given(model: torch.nn.Module, args: Any, outputs: Any) -> Any:
    """What the model gives, in the order that losses and metrics know."""
    return map_tensors(outputs, as_rows)

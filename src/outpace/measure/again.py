"""Calling the script's model again on what it was last called with, so that the script does not see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.seams.host import Host
from outpace.seams.module import ModuleSeam, device_of


class Call(NamedTuple):
    """The model and its inputs in the last step."""

    module: nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    autocast: torch.dtype | None
    """what products are cast to; None: nothing is"""

    def made_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the model makes of other inputs, by the script's precision."""
        device = device_of(self.module)
        with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
            return self.module(*args, **kwargs)


def last_call(host: Host) -> Call | None:
    """What the model was last called with; None where it is gone or was not noted."""
    seam = host.seams.get("module")
    called = seam.last_call() if isinstance(seam, ModuleSeam) else None
    return None if called is None else Call(*called)


@contextmanager
def unseen(host: Host, module: nn.Module) -> Iterator[None]:
    """Generators and buffers are as before afterwards, and the seams look away."""
    seam = host.seams["module"]
    assert isinstance(seam, ModuleSeam)
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        with torch.random.fork_rng(), seam.looking_away():
            yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)

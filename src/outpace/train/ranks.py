"""Several processes that train together: what the first one reads, all act on.

The clock decides when the rate falls, when to save and when to end. So all ranks go by the first one's
clock, which costs a small broadcast a step; with one process nothing of this is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import distributed

from outpace.errors import UsageError
from outpace.train.objective import Judged


def met(device: torch.device) -> int:
    """How many processes train together; they meet here where a launcher has started several."""
    use(device)
    if not distributed.is_available():
        return 1
    if not distributed.is_initialized() and expected() > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return distributed.get_world_size() if distributed.is_initialized() else 1


def use(device: torch.device) -> None:
    """Have it be the current one: what is timed waits for that."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def expected() -> int:
    """How many processes a launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this process writes and speaks for all."""
    return number() == 0


def number() -> int:
    """This process among those that train together."""
    together = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if together else 0


NOWHERE = ("cpu", "meta")
"""types of devices that a model is on as it was made"""


def device_of(
    given: str | torch.device | None, model: torch.nn.Module | None = None
) -> torch.device:
    """The device asked for, else that of the model where it was moved to one, else this rank's GPU, else the
    CPU. Raises UsageError where none is asked for and the model is on several.
    """
    if given is not None:
        try:
            device = torch.device(given)
        except RuntimeError as error:
            raise UsageError(
                f"{given!r} is no device", "write 'cpu', 'cuda' or 'cuda:1'"
            ) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UsageError(f"device={given!r}, and torch sees no GPU", "leave device= out")
        return of_rank(device)
    if model is not None and "LOCAL_RANK" not in os.environ:
        held = {each.device for each in model.parameters() if each.device.type not in NOWHERE}
        if len(held) > 1:
            raise UsageError(
                f"the model's weights are on {' and '.join(sorted(map(str, held)))}",
                "give device=, to which all of them are moved",
            )
        if held:
            return held.pop()
    if torch.cuda.is_available():
        return torch.device("cuda", own_gpu(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def of_rank(device: torch.device) -> torch.device:
    """This rank's own GPU, where a launcher has started it and the device names no number."""
    rank = os.environ.get("LOCAL_RANK")
    named = str(device) != "cuda"
    return device if named or rank is None else torch.device("cuda", own_gpu(rank))


def own_gpu(rank: str) -> int:
    """The number of this rank's GPU; a launcher may show each rank its own alone."""
    count = torch.cuda.device_count()
    return int(rank) % count if count else int(rank)


def wrapped(
    model: torch.nn.Module, device: torch.device, *, unused: bool = False
) -> torch.nn.Module:
    """The model whose ranks exchange their gradients. ``unused``: the loss does not reach all weights, and
    at each step it is looked which of them it reaches.
    """
    on_gpu = [device.index] if device.type == "cuda" and device.index is not None else None
    return torch.nn.parallel.DistributedDataParallel(
        model, device_ids=on_gpu, find_unused_parameters=unused
    )


@contextmanager
def apart(model: torch.nn.Module) -> Iterator[None]:
    """Backward passes inside add gradients up on each rank; the next one outside exchanges them."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        with model.no_sync():
            yield
        return
    sync = getattr(model, "set_requires_gradient_sync", None)
    if sync is not None:
        sync(False)
    try:
        yield
    finally:
        if sync is not None:
            sync(True)


def alike(tensors: Iterable[torch.Tensor]) -> None:
    """Have all ranks' hold what the first one's do."""
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    with torch.no_grad():
        for some in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            distributed.broadcast(flat, 0)
            parts = torch.split(flat, [tensor.numel() for tensor in some])
            for tensor, part in zip(some, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))


def averaged(weights: Iterable[torch.Tensor], device: torch.device) -> None:
    """Have each weight's gradient be the mean of all ranks'; where no rank has one there is none."""
    weights = list(weights)
    have = summed([float(weight.grad is not None) for weight in weights], device) if weights else []
    for weight, count in zip(weights, have, strict=True):
        if count:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            distributed.all_reduce(weight.grad)
            weight.grad /= distributed.get_world_size()


@final
class Agreed:
    """What the first rank reads, and what it alone knows; whether any rank is to end. All ranks have to call
    it equally often.
    """

    def __init__(self, read: Callable[[], float], device: torch.device) -> None:
        self.read, self.device = read, device
        self.wants = False
        """this rank's wish, told with the next reading"""
        self.ends = False
        """one of them had it"""
        self.wrote_s = self.write_s = 0.0
        """what this rank needs to write at the end, told with the next reading; what the first one does"""

    def __call__(self) -> float:
        """The reading."""
        seconds, wrote_s = (self.read(), self.wrote_s) if leads() else (0.0, 0.0)
        told = summed([seconds, float(self.wants), wrote_s], self.device)
        reading, wishes, self.write_s = told
        self.ends = self.ends or wishes > 0.0
        return reading


def summed(values: list[float], device: torch.device) -> list[float]:
    """The sum of each over all ranks."""
    on = device if distributed.get_backend() == "nccl" else torch.device("cpu")
    together = torch.tensor(values, dtype=torch.float64, device=on)
    distributed.all_reduce(together)
    found: list[float] = together.tolist()
    return found


def while_all(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """As long as all ranks have one."""
    for batch in batches:
        if summed([1.0], device)[0] < distributed.get_world_size():
            return
        yield batch
    summed([0.0], device)


def least(value: int, world: int) -> int:
    """The least of all ranks'; False where it is not true for one."""
    return min(gathered(value, world)) if world > 1 else value


def most(value: float, world: int) -> float:
    """The most of all ranks'."""
    return max(gathered(value, world)) if world > 1 else value


def mean(value: float, world: int, device: torch.device) -> float:
    """Of all ranks'."""
    return summed([value], device)[0] / world if world > 1 else value


def judged(found: Judged, world: int, device: torch.device) -> Judged:
    """What all ranks' validations have given together, each weighted by its samples."""
    if world == 1:
        return found
    loss, metric, count, untold, measured = found
    told = count - untold
    sums = [
        *(loss * told if told else 0.0, (metric or 0.0) * measured if measured else 0.0),
        *(float(told), float(measured), float(count)),
    ]
    *both, told_of, measured_of, total = summed(sums, device)
    value = both[1] / measured_of if measured_of else math.nan
    return Judged(
        both[0] / told_of if told_of else math.nan,
        value if metric is not None else None,
        round(total),
        round(total - told_of),
        round(measured_of),
    )


def first(value: Any, world: int) -> Any:
    """The first rank's, for all."""
    held = [value]
    if world > 1:
        distributed.broadcast_object_list(held, 0)
    return held[0]


def gathered(value: Any, world: int) -> list[Any]:
    """Each rank's."""
    found: list[Any] = [None] * world
    distributed.all_gather_object(found, value)
    return found

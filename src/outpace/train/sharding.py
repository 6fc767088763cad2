"""Weights, gradients and the optimizer's state in shards, one on each rank (`fully_shard` of torch).

A copy of the user's model is what is sharded; the model itself stays whole where it is, gives the first
weights and gets the best ones in the end. So each rank has room for it once, in main memory where it was
made there, and the device holds shards, and of whole weights those of one layer at a time.

Layers of a list (`nn.Sequential`, `nn.ModuleList`) are gathered one by one as they are called, what is
left together with the root. Limits: layers of a list have to be called, not only read; parameters without
a dimension cannot be sharded; all ranks have to call the model equally often.
Source: Zhao et al. 2023, arXiv 2304.11277 (PyTorch FSDP).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast, final

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.checkpoint import copied, versioned
from outpace.train.layers import copy_of_optimizer, shared

LEAST = 100_000
"""weights of a layer below which it is not worth an exchange of its own"""
LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@final
class Shards:
    """``whole``: the user's model; ``module``: a copy of it in shards, with the weights of the first rank.

    Raises UsageError where it cannot be copied or sharded.
    """

    def __init__(self, whole: nn.Module, device: torch.device, world: int) -> None:
        self.whole, self.device = whole, device
        self.mesh = init_device_mesh(device.type, (world,))
        self.module: Any = self.empty()
        """an FSDPModule"""
        self.fill()

    def empty(self) -> Any:
        """A model like the whole one, in shards whose values are to come."""
        memo: dict[int, Any] = {
            id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
            for p in self.whole.parameters()
        }
        try:
            module = copy.deepcopy(self.whole, memo)
            for layer in [*units(module), module]:
                fully_shard(layer, mesh=self.mesh)
        except (ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise UsageError(
                f"shard=True: {type(self.whole).__name__} cannot be sharded: {error}",
                "leave shard= out: each rank then has all weights",
            ) from error
        module.to_empty(device=self.device)
        module.register_forward_pre_hook(before_forward)
        return module

    def fill(self) -> None:
        """Take the weights and buffers of the first rank's whole model."""
        with torch.no_grad():
            parameters = zip(self.module.parameters(), self.whole.parameters(), strict=True)
            for mine, theirs in parameters:
                values = theirs.detach().to(self.device)
                mine.copy_(distribute_tensor(values, self.mesh, mine.placements))
            for own, given in zip(self.module.buffers(), self.whole.buffers(), strict=True):
                own.copy_(given)
        ranks.alike(self.module.buffers())

    @contextmanager
    def at_home(self) -> Iterator[nn.Module]:
        """The whole model on the device; what it is given inside is taken over."""
        home = next(self.whole.parameters()).device
        yield self.whole.to(self.device)
        self.whole.to(home)
        self.fill()

    def copy(self) -> nn.Module:
        """The model as it is, in shards as well."""
        self.module.reshard()
        found = self.empty()
        with torch.no_grad():
            for kind in (nn.Module.parameters, nn.Module.buffers):
                for mine, theirs in zip(kind(found), kind(self.module), strict=True):
                    mine.copy_(theirs)
        for mine, theirs in zip(found.modules(), self.module.modules(), strict=True):
            mine.training = theirs.training
        return found  # type: ignore[no-any-return]

    def copies(self, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """A copy of the model, and the optimizer of it."""
        module = self.copy()
        pairs = zip(self.module.parameters(), module.parameters(), strict=True)
        return module, copy_of_optimizer(optimizer, {id(mine): theirs for mine, theirs in pairs})

    def together(self, batches: Iterable[Any], forward: Callable[[Any], Any]) -> Iterator[Any]:
        """A rank that has no batch left goes on calling the model for as long as another one has."""
        batch = None
        for batch in batches:
            ranks.summed([1.0], self.device)
            yield batch
        while batch is not None and ranks.summed([0.0], self.device)[0]:
            forward(batch)

    def gathered(self, state: Any, *, keep: bool = True) -> Any:
        """A nest whose tensors are copied to the CPU, those in shards as a whole; all ranks call it.

        ``keep=False``: nothing is kept, as it is another rank that needs it.
        """
        if isinstance(state, torch.Tensor):
            own = state.detach()
            if isinstance(own, DTensor):
                # The best weights were taken to the CPU, where a group of GPUs exchanges nothing.
                own = cast(DTensor, own.to(self.device)).full_tensor()
            return own.to("cpu", copy=True) if keep else None
        if isinstance(state, Mapping):
            values = {key: self.gathered(value, keep=keep) for key, value in state.items()}
            return versioned(values, state)
        if isinstance(state, list | tuple):
            return type(state)(self.gathered(value, keep=keep) for value in state)
        return copied(state)

    def placed(self, values: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
        """Whole tensors that all ranks have, cut to this rank's shards where ``like`` has shards; of dicts in
        both too.
        """
        found = dict[str, Any]()
        for name, value in values.items():
            own: Any = like.get(name)
            inside = isinstance(value, Mapping) and isinstance(own, Mapping)
            found[name] = self.placed(value, own) if inside else cut(value, own)
        return versioned(found, values)

    def by_whole(
        self, weight: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """What is made of a whole weight, as its shards are."""
        whole = weight.detach()
        return cut(make(whole.full_tensor() if isinstance(whole, DTensor) else whole), whole)  # type: ignore[no-any-return]

    def placed_state(
        self, state: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """The same of an optimizer's: what has a weight's shape is cut as the weight is."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        of = dict(zip(indices, weights, strict=False))  # its length is checked where it is loaded
        own = {
            index: self.placed(each, dict.fromkeys(each, of.get(index)))
            for index, each in state["state"].items()
        }
        return {**state, "state": own}


def units(model: nn.Module) -> list[nn.Module]:
    """The layers of its lists that are large enough, and have no weights that others have too."""
    tied, found = shared(model), list[nn.Module]()

    def look(module: nn.Module) -> None:
        for child in module.children():
            own = list(child.parameters())
            alone = not any(id(parameter) in tied for parameter in own)
            large = sum(parameter.numel() for parameter in own) >= LEAST
            if isinstance(module, LISTS) and not isinstance(child, LISTS) and large and alone:
                found.append(child)
            else:
                look(child)

    look(model)
    return found


def before_forward(module: Any, args: Any) -> None:
    """In training all ranks have the first one's buffers, as with DistributedDataParallel; what no backward
    pass follows leaves shards, also of the root, which else stays whole until then.
    """
    if module.training:
        ranks.alike(module.buffers())
    module.set_reshard_after_forward(not torch.is_grad_enabled(), recurse=False)


def cut(value: Any, like: Any) -> Any:
    """This rank's shard of a whole tensor, where it stands for one in shards."""
    if not isinstance(like, DTensor) or isinstance(value, DTensor):
        return value
    if not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    values = value.to(like.device)
    return distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)

"""A model that does less: how much time a part of it takes is seen by leaving it out.

Only for steps whose results are thrown away. What is left out is put back by `undo`; weights are
not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from outpace.seams.hooks import Hook, is_scripted

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
DROPOUT = nn.modules.dropout._DropoutNd
DEAR = (nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.ELU, nn.SELU, nn.CELU, nn.Tanh, nn.Hardswish)
"""activations that cost more than a comparison"""


def parts_of(root: nn.Module | None) -> Iterator[tuple[str, nn.Module]]:
    """The children of a model, those in its lists one by one; none that TorchScript runs."""
    if root is None:
        return
    for name, child in root.named_children():
        if is_scripted(child):
            continue
        if isinstance(child, CONTAINERS):
            for inner, part in child.named_children():
                if not is_scripted(part):
                    yield f"{name}.{inner}", part
        else:
            yield name, child


def alter(root: nn.Module, change: tuple[str, str]) -> Callable[[], None]:
    """Change a model; returns what undoes it.

    ``change``: ("without", part) gives the part's input on in its place, ("frozen", part) learns
    nothing up to that part, ("without dropout", "") and ("relu", "") are of the whole model.
    """
    kind, name = change
    if kind == "without":
        return _replaced([root.get_submodule(name)], _identity)
    if kind == "without dropout":
        return _replaced([m for m in root.modules() if isinstance(m, DROPOUT)], _identity)
    if kind == "relu":
        return _replaced([m for m in root.modules() if isinstance(m, DEAR)], torch.relu)
    assert kind == "frozen"
    return _frozen(root, name)


def _identity(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _replaced(modules: list[nn.Module], forward: Callable[..., Any]) -> Callable[[], None]:
    before = [(module, module.__dict__.get("forward")) for module in modules]
    for module in modules:
        module.forward = forward

    def undo() -> None:
        for module, own in before:
            if own is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = own

    return undo


def _frozen(root: nn.Module, last: str) -> Callable[[], None]:
    frozen: list[nn.Parameter] = []
    for name, part in parts_of(root):
        frozen += [weight for weight in part.parameters() if weight.requires_grad]
        if name == last:
            break
    for weight in frozen:
        weight.requires_grad_(False)
        weight.grad = None

    def undo() -> None:
        for weight in frozen:
            weight.requires_grad_(True)

    return undo


class PassingThrough:
    """Finds the parts whose output has the shape of their input, and so can be left out.

    ``kinds``: name of each such part -> its class; hooks are in the model until ``close``.
    """

    def __init__(self, root: nn.Module) -> None:
        self.kinds: dict[str, str] = {}
        self._hooks = [
            part.register_forward_hook(Hook(self._after(name))) for name, part in parts_of(root)
        ]

    def _after(self, name: str) -> Callable[..., None]:
        def after(part: nn.Module, given: Any, out: Any) -> None:
            first = given[0] if given else None
            same = (
                isinstance(first, torch.Tensor)
                and isinstance(out, torch.Tensor)
                and (first.shape, first.dtype) == (out.shape, out.dtype)
            )
            if same and next(part.parameters(), None) is not None:
                self.kinds[name] = type(part).__name__

        return after

    def close(self) -> None:
        """Take the hooks out."""
        for hook in self._hooks:
            hook.remove()

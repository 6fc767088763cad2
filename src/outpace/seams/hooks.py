"""Hooks of ours in the script's modules, for a step or a few: what the script copies or saves meanwhile is
without them, and parts that TorchScript runs, which take no hooks of Python, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import nn


@final
class Hook:
    """A function as a hook; in a copy or a file one that does nothing is in its place.

    That is a method of Python's own, so that a file can be read where there is no outpace.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        return nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


def is_scripted(module: nn.Module) -> bool:
    """Whether TorchScript runs it."""
    return isinstance(module, torch.jit.ScriptModule)


def scripted_in(module: nn.Module) -> set[nn.Module]:
    """The parts of it that TorchScript runs."""
    found = (one for one in module.modules() if is_scripted(one))
    return {part for one in found for part in one.modules()}


def has_others(module: nn.Module) -> bool:
    """Whether it or a part has a hook that is none of torch's own: what that does is not known."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = [
        hook
        for part in module.modules()
        for name in names
        for hook in vars(part).get(name, {}).values()
    ]
    hooks += [
        hook
        for parameter in module.parameters()
        for hook in (getattr(parameter, "_backward_hooks", None) or {}).values()
    ]
    return not all(_is_torchs(hook) for hook in hooks)


def _is_torchs(hook: Any) -> bool:
    of = getattr(hook, "__module__", None) or type(hook).__module__
    return str(of).partition(".")[0] == "torch"

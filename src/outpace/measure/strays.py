"""Layers that a model calls and does not have: those in a plain list are none of its parameters.

An optimizer that is given ``model.parameters()`` misses them, and so does a checkpoint. They are found by
hooks on all modules, while a step is looked at closely and nothing is compiled, which such hooks would have
done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from outpace.seams.compiled import graphs_compiled
from outpace.seams.host import Host


class Strays:
    """Found in the calls of the main model so far."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.model: nn.Module | None = None
        self.own: set[int] = set()
        """modules (id) of the model"""
        self.called: dict[int, nn.Module] = {}
        """others that were called within its call, in that order"""
        self.inside = False
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Look at the calls that follow."""
        rooted = self.host.main_root()
        if rooted is None or graphs_compiled():
            return
        self.model = rooted[0]
        self.own, self.called = {id(module) for module in self.model.modules()}, {}
        hooks = (
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, always_call=True),
        )
        self._undo = [hook.remove for hook in hooks]

    def end(self) -> None:
        """Look at no more of them."""
        while self._undo:
            self._undo.pop()()
        # Nothing of a model is held between looks: it may be dropped, as one of several folds.
        self.model, self.own, self.called, self.inside = None, set(), {}, False

    def _begins(self, module: nn.Module, args: Any) -> None:
        if module is self.model:
            self.inside = True
        elif self.inside and id(module) not in self.own:
            self.called[id(module)] = module

    def _ends(self, module: nn.Module, args: Any, out: Any) -> None:
        if module is self.model:
            self.inside = False

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Theirs that are none of the model's, by names such as "Block 2, norm.weight"."""
        if self.model is None:
            return
        met = {id(parameter) for parameter in self.model.parameters()}
        within = {
            id(inner)
            for module in self.called.values()
            for inner in module.modules()
            if inner is not module
        }
        counts: dict[str, int] = {}
        for module in self.called.values():
            if id(module) in within:
                continue
            kind = type(module).__name__
            counts[kind] = counts.get(kind, 0) + 1
            for name, parameter in module.named_parameters():
                if id(parameter) not in met:
                    met.add(id(parameter))
                    yield f"{kind} {counts[kind]}, {name}", parameter

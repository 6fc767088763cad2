"""Activations that the script has computed again in its backward pass: where, and how to keep them meanwhile.

`torch.utils.checkpoint.checkpoint` is imported by name, or held by a model long before it trains. So the seam
is not at it but at the two that it calls for each of its kinds, and no frame of ours is among the script's.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
import torch.utils.checkpoint as library

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.setup import Setup
from outpace.seams.where import caller

HELD = "_checkpoint_without_reentrant_generator"
"""what ``use_reentrant=False`` calls; ``CheckpointFunction.apply`` is what the older kind calls"""


class RecomputeSeam:
    """Stands at what ``checkpoint`` calls."""

    name = "recompute"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.where: str | None = None
        """file:line at which the script asks for it; None: it does not"""
        self.draws = False
        """it asks that random numbers be drawn anew there"""
        self.inside = 0
        """functions that are running, for the first time, whose activations are not kept"""
        self.kept = False
        """they are, whatever the script asks"""
        self.replaced = Replaced()

    def install(self) -> None:
        """Put the seam in, where torch has what it stands at."""
        if hasattr(library, HELD):
            self.replaced.put(library, HELD, self._wrap_held)
            self.replaced.put(library.CheckpointFunction, "apply", self._wrap_apply)

    def _wrap_held(self, held: Any) -> Any:
        def generator(function: Any, *rest: Any, **kwargs: Any) -> Generator[None, None, None]:
            context = (
                rest[1] if len(rest) > 1 else kwargs.get("context_fn", library.noop_context_fn)
            )
            if self._unseen(preserve=bool(next(iter(rest), True))) or (
                self.kept and context is not library.noop_context_fn  # what it sets is needed
            ):
                yield from held(function, *rest, **kwargs)
            elif self.kept:
                yield
            else:
                self.inside += 1
                try:
                    yield from held(function, *rest, **kwargs)
                finally:
                    self.inside -= 1

        return generator

    def _wrap_apply(self, applied: Any) -> Any:
        def apply(function: Any, preserve: bool, *args: Any) -> Any:
            # Where no input needs a gradient this kind trains nothing inside: to keep it would.
            if self._unseen(preserve=preserve) or not any(needs_gradient(one) for one in args):
                return applied(function, preserve, *args)
            if self.kept:
                return function(*args)
            self.inside += 1
            try:
                return applied(function, preserve, *args)
            finally:
                self.inside -= 1

        return apply

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()
        self.kept = False

    def reconcile(self, setup: Setup) -> None:
        """Keep activations, or not, in the steps that come."""
        self.kept = setup.kept_activations

    def _unseen(self, *, preserve: bool) -> bool:
        """Whether a call is none of the training's; else note where it comes from, and what it asks for."""
        host = self.host
        if host.setup.checkpointed or not host.on_main_thread() or not torch.is_grad_enabled():
            return True  # ours, a thread's own, or one of which nothing is kept
        if self.where is None:
            self.where = host.guard("recompute", caller)
        self.draws |= not preserve
        return False


def needs_gradient(value: Any) -> bool:
    """Whether it is a tensor that asks for its gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad

"""A model's blocks computed again in the backward pass, as a Setup may ask, instead of kept.

What a block moves besides its activations is moved once. Computed again it has its buffers as they were,
and draws the same numbers: torch sees to its own generators, here it is Python's and numpy's. What a block
notes elsewhere, as in a list, it notes twice.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from torch import nn

from outpace.seams.generators import beside_torch, moved, put_back
from outpace.seams.setup import Setup
from outpace.seams.version_of import version_of

SMALL = 1 << 16
"""elements of a buffer that is not worth a look, as statistics are"""


@contextlib.contextmanager
def recomputing(module: nn.Module, setup: Setup) -> Iterator[None]:
    """Have a model's blocks be computed again in the backward pass of what is called meanwhile."""
    bring_checkpoints(module, wanted=True)
    try:
        yield
    finally:
        if not setup.compiled:  # else its guards would miss them
            bring_checkpoints(module, wanted=False)  # it may be copied, or saved


def bring_checkpoints(module: nn.Module, *, wanted: bool) -> None:
    """Recompute each block's activations in the backward pass, or keep them again."""
    for block in blocks_of(module):
        if wanted and "forward" not in block.__dict__:
            plain = block.forward

            def forward(
                *args: Any, _plain: Any = plain, _block: nn.Module = block, **kwargs: Any
            ) -> Any:
                if not torch.is_grad_enabled():
                    return _plain(*args, **kwargs)
                from torch.utils.checkpoint import checkpoint

                if torch.compiler.is_compiling():  # what moves is an output then, and moves once
                    return checkpoint(_plain, *args, use_reentrant=False, **kwargs)
                return checkpoint(
                    _plain,
                    *args,
                    use_reentrant=False,
                    context_fn=lambda: first_and_again(_block),
                    **kwargs,
                )

            forward.outpace = True  # type: ignore[attr-defined]
            block.forward = forward
        elif not wanted and getattr(block.__dict__.get("forward"), "outpace", False):
            with contextlib.suppress(AttributeError):
                del block.forward


def blocks_of(module: nn.Module) -> Iterator[nn.Module]:
    """The repeated blocks of a model: children of the list that repeats one kind most often."""
    lists = [m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    longest = max(lists, key=_repeats, default=None)
    if longest is not None and len(longest) > 1:
        for block in longest:
            if next(block.parameters(), None) is not None:
                yield block


def _repeats(blocks: nn.Module) -> int:
    kinds = Counter(type(b) for b in blocks.children() if next(b.parameters(), None) is not None)
    return max(kinds.values(), default=0)


class Held(NamedTuple):
    """A buffer before a forward pass: whose it is, torch's count of its changes, and its value."""

    part: nn.Module
    name: str
    buffer: torch.Tensor
    changed: int
    value: torch.Tensor

    @property
    def may_have_moved(self) -> bool:
        """Whether it may be another now; torch does not count what a batch norm does to its statistics."""
        return (
            self.buffer.numel() <= SMALL
            or getattr(self.part, self.name, None) is not self.buffer
            or version_of(self.buffer) != self.changed
        )


def first_and_again(
    block: nn.Module,
) -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
    """What a block's forward pass is made in, and what it is made in again, as often as that may be."""
    again = Again(block)
    return again.first(), again


@final
class Again:
    """Copies of the buffers that the forward pass moved stand in for them; generators are as they were."""

    def __init__(self, block: nn.Module) -> None:
        self.random = beside_torch()
        self.held = [
            Held(part, name, buffer, version_of(buffer), buffer.detach().clone())
            for part in block.modules()
            for name, buffer in part.named_buffers(recurse=False)
        ]
        self.now: list[torch.Tensor | None] = []
        self.random_now: dict[str, Any] = {}

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """After the forward pass only what it may have moved is still held."""
        yield
        self.held = [each for each in self.held if each.may_have_moved]
        drawn = moved(self.random, beside_torch())
        self.random = {name: self.random[name] for name in drawn}

    def __enter__(self) -> None:
        self.now = [getattr(each.part, each.name, None) for each in self.held]
        self.random_now = beside_torch()
        for each in self.held:
            setattr(each.part, each.name, each.value.clone())
        put_back(self.random)

    def __exit__(self, *exception: object) -> None:
        for each, buffer in zip(self.held, self.now, strict=True):
            setattr(each.part, each.name, buffer)
        put_back({name: self.random_now[name] for name in self.random})
        self.now = []

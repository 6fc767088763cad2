"""What a script has computed again: where it asks for it, and the same training with all of it kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.utils.checkpoint as library
from torch import nn
from torch.utils.checkpoint import checkpoint  # by its name, before the seam is in

from outpace.seams.host import Host
from outpace.seams.recompute import HELD, RecomputeSeam
from outpace.seams.setup import AS_IS

KEPT = replace(AS_IS, kept_activations=True)


class Block(nn.Module):
    """Counts how often it is run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5))
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        out: torch.Tensor = self.inner(x)
        return out


@pytest.fixture
def seam() -> Iterator[RecomputeSeam]:
    plain = getattr(library, HELD)
    found = RecomputeSeam(Host())
    found.install()
    found.install()
    yield found
    found.remove()
    found.remove()
    assert getattr(library, HELD) is plain
    assert "apply" not in library.CheckpointFunction.__dict__


def gradients(block: Block, *, reentrant: bool, needed: bool = True) -> list[torch.Tensor | None]:
    """Of the block's parameters by one backward pass, its random numbers always the same."""
    torch.manual_seed(1)
    block.zero_grad()
    x = torch.ones(4, 8, requires_grad=needed)
    (
        checkpoint(block, x, use_reentrant=reentrant) * torch.ones(8, requires_grad=True)
    ).sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in block.parameters()]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_kept_is_not_computed_again(seam: RecomputeSeam, reentrant: bool) -> None:
    block = Block()
    again = gradients(block, reentrant=reentrant)
    assert block.runs == 2
    assert seam.where is not None
    assert "test_recompute.py:" in seam.where
    assert not seam.inside
    seam.reconcile(KEPT)
    kept = gradients(block, reentrant=reentrant)
    assert block.runs == 3
    for one, other in zip(again, kept, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
    seam.reconcile(AS_IS)
    gradients(block, reentrant=reentrant)
    assert block.runs == 5


def test_what_a_context_of_the_scripts_sets_is_not_left_out(seam: RecomputeSeam) -> None:
    entered: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        entered.append(name)
        yield

    seam.reconcile(KEPT)
    x = torch.ones(4, 8, requires_grad=True)
    checkpoint(
        Block(), x, use_reentrant=False, context_fn=lambda: (noted("first"), noted("again"))
    ).sum().backward()
    assert entered == ["first", "again"]


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_what_the_older_kind_does_not_train_stays_untrained(seam: RecomputeSeam) -> None:
    seam.reconcile(KEPT)
    assert gradients(Block(), reentrant=True, needed=False) == [None, None]
    assert all(g is not None for g in gradients(Block(), reentrant=False, needed=False))


def test_an_error_leaves_nothing_open(seam: RecomputeSeam) -> None:
    def failing(x: torch.Tensor) -> torch.Tensor:
        assert seam.inside == 1
        raise OSError("inside")

    for reentrant in (True, False):
        with pytest.raises(OSError, match="inside"):
            checkpoint(failing, torch.ones(1, requires_grad=True), use_reentrant=reentrant)
        assert not seam.inside


def test_ours_and_a_validations_are_not_the_scripts(seam: RecomputeSeam) -> None:
    with torch.no_grad():
        checkpoint(Block(), torch.ones(2, 8), use_reentrant=False)
    assert seam.where is None
    seam.host.setup = replace(AS_IS, checkpointed=True)
    gradients(Block(), reentrant=False)
    assert seam.where is None


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers_that_are_drawn_anew_are_told(
    seam: RecomputeSeam, reentrant: bool, preserve: bool
) -> None:
    x = torch.ones(4, 8, requires_grad=True)
    checkpoint(Block(), x, use_reentrant=reentrant, preserve_rng_state=preserve).sum().backward()
    assert seam.draws is not preserve

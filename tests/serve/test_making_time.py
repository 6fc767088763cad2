"""What a batch takes this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from outpace.serve import probe
from outpace.serve.probe import gather_time, making_time


class Counted(TensorDataset):
    drawn = 0

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        Counted.drawn += 1
        random.random()
        return super().__getitem__(index)


def test_some_batches_are_made_here_and_nobody_sees_it() -> None:
    loader = DataLoader(Counted(torch.randn(64, 4)), batch_size=8, num_workers=2)
    random.seed(0)
    before, generator = random.getstate(), torch.get_rng_state()
    found = making_time(loader)
    assert found is not None
    assert found > 0
    assert Counted.drawn == probe.MADE * 8
    assert random.getstate() == before
    assert torch.equal(torch.get_rng_state(), generator)


class Endless(IterableDataset[int]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from iter(int, 1)


def shuffled(own: torch.Generator | None) -> DataLoader[Any]:
    rows = TensorDataset(torch.randn(64, 4))
    return DataLoader(rows, batch_size=8, shuffle=True, generator=own)


TIMED: dict[str, Callable[[DataLoader[Any]], float | None]] = {
    "making": making_time,
    "slice": lambda loader: gather_time(loader, "slice", 0),
    "cache": lambda loader: gather_time(loader, "cache", 1 << 20),
}


@pytest.mark.parametrize("timed", TIMED)
@pytest.mark.parametrize("own", [False, True])
def test_an_order_that_is_drawn_while_timing_is_drawn_again(timed: str, own: bool) -> None:
    generator = torch.Generator().manual_seed(5) if own else None
    loader = shuffled(generator)
    torch.manual_seed(5)
    wanted = [batch.tolist() for (batch,) in loader]
    if generator is not None:
        generator.manual_seed(5)
    torch.manual_seed(5)
    assert TIMED[timed](loader)
    assert [batch.tolist() for (batch,) in loader] == wanted


def test_what_has_no_items_is_left_alone() -> None:
    assert making_time(DataLoader(Endless(), batch_size=8)) is None
    assert making_time(DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=None)) is None


class Slow(TensorDataset):
    """An item takes a second, a slice a tenth of one; by a clock of its own."""

    now = 0.0

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, ...]:
        Slow.now += 0.1 if isinstance(index, list) else 1.0
        return super().__getitem__(index)


def test_a_slice_is_timed_without_the_items_that_it_is_compared_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "perf_counter", lambda: Slow.now)
    loader = DataLoader(Slow(torch.randn(64, 4)), batch_size=8)
    assert gather_time(loader, "slice", 0) == pytest.approx(0.1)

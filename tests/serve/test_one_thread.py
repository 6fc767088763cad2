"""Samples are of the same bits whoever makes them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from outpace.serve.batches import same_bits
from outpace.serve.loader import Loader
from outpace.serve.one_thread import one_thread


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    """A machine of several cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_only_the_thread_itself_has_fewer() -> None:
    asked, done = threading.Event(), threading.Event()
    seen = []

    def other() -> None:
        seen.append(torch.get_num_threads())
        asked.set()
        done.wait()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    thread.start()
    asked.wait()
    with contextlib.suppress(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        done.set()
        thread.join()
        raise KeyError
    assert seen == [3, 3]
    assert torch.get_num_threads() == 3


class Noise:
    """Waves of which only the index is kept."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        self.threads.add(torch.get_num_threads())
        return torch.rand(8, 100_003, generator=torch.Generator().manual_seed(index))


def sums(sample: torch.Tensor) -> torch.Tensor:
    """By which bits tell by how many threads."""
    return torch.stack([each.sum() for each in sample])


def level(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) - torch.stack(samples).mean()


@pytest.mark.parametrize("executor", ["none", "threads", "processes"])
def test_samples_are_the_same_whoever_makes_them(executor: Any) -> None:
    def epoch(executor: Any) -> list[Any]:
        source = Noise()
        loader = Loader(source, 4, transform=sums, collate=level, executor=executor, workers=1)
        with contextlib.closing(loader):
            found = [batch.clone() for batch in loader]
        assert source.threads == {1}
        return found

    with one_thread():
        wanted = epoch("none")
    with open(__file__):  # whether drawing moves a place in a file is tried where one is open
        assert same_bits(epoch(executor), wanted)
    assert torch.get_num_threads() == 3


def test_kept_samples_are_as_workers_make_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = Loader(
        Noise(), 4, prepare=sums, keep=tmp_path, shuffle=False, executor="processes", workers=1
    )
    with contextlib.closing(loader):
        for _ in range(2):
            assert len(list(loader)) == 2
        assert loader.maker.shelf is not None
        assert len(loader.maker.shelf) == 8
        assert not loader.maker.shelf.void
    assert "not as it was kept" not in capfd.readouterr().err

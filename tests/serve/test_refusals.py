"""What trying a data set has shown holds for each DataLoader of it, as long as it is the same."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, get_worker_info

from outpace.seams.setup import Feed, Setup
from outpace.serve import place_in_file, refusals
from outpace.serve.feeds import make_feed
from tests.remedies.trainings import hosted

THREADS = Feed(executor="threads", workers=2)
PROCESSES = Feed(executor="processes", workers=1)


class Drawn(threading.local):
    """Indices of samples; what each thread has by itself keeps them from none."""

    def __init__(self) -> None:
        self.seen: list[int] = []


DRAWN = Drawn()

pytestmark = pytest.mark.skipif(
    not Path(place_in_file.DESCRIPTORS).is_dir(), reason="the system lists no descriptors"
)


class Numbers(Dataset[int]):
    """``seeks``: by the place in a file that threads would share."""

    def __init__(self, path: Path, *, seeks: bool = False) -> None:
        path.write_bytes(bytes(range(64)))
        self.opened, self.seeks = os.open(path, os.O_RDONLY), seeks
        self.scale = 1

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        DRAWN.seen.append(index)
        if self.seeks:
            os.lseek(self.opened, index, os.SEEK_SET)
            return os.read(self.opened, 1)[0]
        return os.pread(self.opened, 1, index)[0] * self.scale

    def together(self, samples: Any) -> Any:
        return samples


def tried(loader: Any, feed: Feed) -> tuple[int, bool]:
    """How many samples are drawn to make a feed, and whether one is made."""
    DRAWN.seen.clear()
    try:
        make_feed(loader, feed).close()
    except NotImplementedError:
        return len(DRAWN.seen), False
    return len(DRAWN.seen), True


@pytest.fixture(autouse=True)
def looking_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(refusals, "LITTLE_S", 60.0)


@pytest.mark.parametrize("feed", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_samples_are_drawn_once_for_two_loaders(tmp_path: Path, feed: Feed) -> None:
    data = Numbers(tmp_path / "numbers")
    assert tried(DataLoader(data, 8), feed) == (3, True)
    assert tried(DataLoader(data, 4, shuffle=True), feed) == (0, True)
    seeking = Numbers(tmp_path / "seeking", seeks=True)
    assert tried(DataLoader(seeking, 8), feed) == (2, False)
    assert tried(DataLoader(seeking, 4, shuffle=True), feed) == (0, False)


def test_what_it_depends_on_is_tried_anew(tmp_path: Path) -> None:
    data = Numbers(tmp_path / "numbers")
    assert tried(DataLoader(data, 8), THREADS) == (3, True)
    for other in (
        DataLoader(Numbers(tmp_path / "others"), 8),
        DataLoader(data, 8, collate_fn=list),
        DataLoader(data, None),
        DataLoader(data, 8, num_workers=1),
    ):
        assert tried(other, THREADS) == (3, True)
    assert tried(DataLoader(data, 8), PROCESSES) == (3, True)
    assert tried(DataLoader(data, 8, num_workers=1), PROCESSES) == (0, True)
    data.scale = 2
    assert tried(DataLoader(data, 8), THREADS) == (3, True)
    assert tried(DataLoader(data, 8), THREADS) == (0, True)
    data.seeks = True
    assert tried(DataLoader(data, 8), THREADS) == (2, False)


def test_a_method_is_the_same_each_time(tmp_path: Path) -> None:
    data = Numbers(tmp_path / "numbers")
    assert tried(DataLoader(data, 8, collate_fn=data.together), THREADS) == (3, True)
    assert tried(DataLoader(data, 8, collate_fn=data.together), THREADS) == (0, True)
    gone = weakref.ref(data)
    del data
    gc.collect()
    assert gone() is None


def test_a_data_set_that_takes_long_to_look_at_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(refusals, "state_of", lambda *things: looked.append(things))
    data = Numbers(tmp_path / "numbers")
    for _ in range(3):
        assert tried(DataLoader(data, 8), THREADS) == (3, True)
    assert len(looked) == 1


def begin(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.scale = 7


def test_a_worker_is_begun_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    same = refusals.same_in_worker
    monkeypatch.setattr(
        refusals, "same_in_worker", lambda loader: begun.append(loader) or same(loader)
    )
    data = Numbers(tmp_path / "numbers")
    for _ in range(2):
        loader = DataLoader(data, 8, num_workers=1, worker_init_fn=begin)
        assert not tried(loader, Feed(executor="ahead"))[1]
    assert len(begun) == 1


def test_a_loader_that_is_refused_is_not_tried_with_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Any] = []
    moves = refusals.moves_place
    monkeypatch.setattr(
        refusals, "moves_place", lambda data, draw: moved.append(data) or moves(data, draw)
    )
    data = Numbers(tmp_path / "numbers", seeks=True)
    with hosted(Setup(feed=THREADS)) as host:
        loader = DataLoader(data, 8)
        for _ in range(3):
            data.scale += 1
            assert len(list(loader)) == 8
        assert not host.broken
    assert len(moved) == 1

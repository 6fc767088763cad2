from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.errors import UsageError
from outpace.serve import repaid as module
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.repaid import Costs, Left, made_twice, repaid
from outpace.serve.shelf import Shelf
from tests.serve.test_shelf import Squares


class Clock:
    """Time that passes where the test says so: in milliseconds."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def spend(self, ms: float, *, waiting: bool = False) -> None:
        self.wall += ms / 1e3
        self.cpu += 0 if waiting else ms / 1e3


class Making(Squares):
    """Samples that take ``make_ms``, on the clock."""

    def __init__(self, clock: Clock, make_ms: float) -> None:
        super().__init__()
        self.clock, self.make_ms = clock, make_ms

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.clock.spend(self.make_ms)
        return super().__getitem__(index)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """To put a sample on a shelf takes 6 ms, to get it 1."""
    clock, put, get = Clock(), Shelf.put, Shelf.get

    def slow_put(self: Shelf, index: int, sample: Any) -> bool:
        clock.spend(6)
        return put(self, index, sample)

    def slow_get(self: Shelf, index: int) -> Any:
        clock.spend(1)
        return get(self, index)

    monkeypatch.setattr(Shelf, "put", slow_put)
    monkeypatch.setattr(Shelf, "get", slow_get)
    times = SimpleNamespace(perf_counter=lambda: clock.wall, thread_time=lambda: clock.cpu)
    monkeypatch.setattr(module, "time", times)
    return clock


def loader(source: Any, folder: Path, epochs: float | None, **more: Any) -> Loader:
    return Loader(
        source,
        16,
        prepare=lambda sample: sample,
        executor="none",
        keep=folder,
        epochs=epochs,
        shuffle=False,
        **more,
    )


def kept(folder: Path) -> int:
    """Samples on the only shelf there is."""
    shelves = [path for path in folder.glob("*") if path.is_dir()]
    assert len(shelves) < 2
    return len(Shelf(shelves[0], 64, 0)) if shelves else 0


def test_samples_are_kept_where_the_epochs_repay_it(clock: Clock, tmp_path: Path) -> None:
    found = loader(Making(clock, 5), tmp_path, epochs=3)
    assert sum(len(batch["id"]) for batch in found) == 64
    assert kept(tmp_path) == 64
    drawn = found.source.drawn  # type: ignore[attr-defined]
    list(found)
    compared = found.source.drawn - drawn  # type: ignore[attr-defined]
    assert compared < 4
    told = "a sample takes 5 ms to make, 6 ms to keep, 1 ms to read when it is kept"
    assert f"{told}: repaid after 2.5 epochs, 3 to go" in found.notes[0]


def test_samples_are_not_kept_where_too_few_epochs_are_left(clock: Clock, tmp_path: Path) -> None:
    found = loader(Making(clock, 5), tmp_path, epochs=2)
    for _ in range(2):
        assert [i for batch in found for i in batch["id"].tolist()] == list(range(64))
    assert list(tmp_path.iterdir()) == []
    (note,) = found.notes
    assert note.startswith("samples are not kept: a sample takes 5 ms to make")
    assert note.endswith("repaid after 2.5 epochs, 2 to go")


@pytest.mark.parametrize(("seconds", "pays"), [(100.0, True), (0.5, False)])
def test_a_deadline_leaves_no_more_epochs_than_could_be_served(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, pays: bool
) -> None:
    monkeypatch.setattr("outpace.serve.loader.cores_of_rank", lambda: 1)
    found = loader(Making(clock, 5), tmp_path, epochs=100, seconds=seconds)
    next(iter(found))  # 64 samples of 5 ms: 0.32 s an epoch
    assert (kept(tmp_path) > 0) == pays


def test_what_is_left_at_most() -> None:
    assert Left().most(100, 0.1) is None
    assert Left(epochs=3).most(100, 0.1) == 3
    assert Left(seconds=100, cores=2).most(100, 0.1) == pytest.approx(20)
    assert Left(epochs=3, seconds=100, cores=2).most(100, 0.1) == 3
    assert Left(epochs=30, seconds=100, cores=2).most(100, 0.1) == pytest.approx(20)
    assert Left(seconds=-1).most(100, 0.1) == 0


@pytest.mark.parametrize(("epoch", "pays"), [(7, True), (8, False)])
def test_a_training_that_goes_on_counts_what_is_left(
    clock: Clock, tmp_path: Path, epoch: int, pays: bool
) -> None:
    found = loader(Making(clock, 5), tmp_path, epochs=10)
    found.load_state_dict({**found.state_dict(), "epoch": epoch, "consumed": 0})
    next(iter(found))
    assert (kept(tmp_path) > 0) == pays


def test_within_an_epoch_its_rest_counts(clock: Clock, tmp_path: Path) -> None:
    found = loader(Making(clock, 5), tmp_path, epochs=10)
    found.load_state_dict({**found.state_dict(), "epoch": 7, "consumed": 48})
    next(iter(found))
    assert kept(tmp_path) == 0
    assert found.notes[0].endswith("2.25 to go")


def test_those_that_are_kept_already_are_read(clock: Clock, tmp_path: Path) -> None:
    next(iter(loader(Making(clock, 5), tmp_path, epochs=3)))
    before = kept(tmp_path)
    assert 16 <= before < 48
    later = loader(Making(clock, 5), tmp_path, epochs=1)
    batches = iter(later)
    next(batches)
    drawn = later.source.drawn  # type: ignore[attr-defined]
    assert sum(len(batch["id"]) for batch in batches) == 48
    assert later.source.drawn - drawn == 64 - before  # type: ignore[attr-defined]
    assert kept(tmp_path) == before
    assert f"{before} of 64 samples are kept in" in later.notes[0]
    assert "no more will be: " in later.notes[0]


def test_what_is_never_repaid_is_kept_only_as_was_asked(clock: Clock, tmp_path: Path) -> None:
    asked = loader(Making(clock, 0.5), tmp_path / "asked", epochs=None)
    list(asked)
    assert kept(tmp_path / "asked") == 64
    assert asked.notes[0].endswith("keeping it is never repaid")
    weighed = loader(Making(clock, 0.5), tmp_path / "weighed", epochs=1000)
    list(weighed)
    assert kept(tmp_path / "weighed") == 0
    assert weighed.notes[0].endswith("keeping it is never repaid")


def test_waiting_counts_as_it_was_for_the_first_time(clock: Clock) -> None:
    waits = iter([30, 0])

    def make() -> int:
        clock.spend(2)
        clock.spend(next(waits), waiting=True)
        return 5

    assert made_twice(make) == (5, 5, pytest.approx(0.032))


def test_the_choice_by_its_figures() -> None:
    assert repaid(Costs(3e-3, 1e-3, 1e-3), 1.5)[0]
    assert not repaid(Costs(3e-3, 1e-3, 1e-3), 1.4)[0]
    assert not repaid(Costs(1e-3, 1e-3, 1e-3), 1e9)[0]
    assert repaid(Costs(1e-3, 1e-3, 1e-3), None)[0]


def test_whole_batches_are_not_kept(tmp_path: Path) -> None:
    pack("tests.serve.test_shelf:Squares", tmp_path / "packed")
    found = Loader(tmp_path / "packed", 16, executor="none", keep=tmp_path / "kept")
    list(found)
    assert found.notes == ["samples are not kept: their source gives whole batches"]
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("what", ["epochs", "seconds"])
def test_a_training_of_no_length_is_refused(what: str) -> None:
    with pytest.raises(UsageError, match=f"0 {what}"):
        Loader(Squares(), **{what: 0})

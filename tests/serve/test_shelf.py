from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import UsageError
from outpace.serve.keeping import shelf_for
from outpace.serve.loader import Loader
from outpace.serve.making import BatchMaker
from outpace.serve.shelf import Shelf, packed, unpacked

MIB = 2**20


class Squares:
    def __init__(self, size: int = 64, factor: int = 1) -> None:
        self.size, self.factor, self.drawn = size, factor, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.drawn += 1
        return {"id": index, "x": np.full((4, 3), self.factor * index**2, np.int64)}


def test_samples_come_back_as_they_were() -> None:
    sample = {
        "a": np.arange(5),
        "b": (torch.arange(3.0), "text", b"bytes", 7),
        "c": [np.zeros((2, 2), "u1")],
    }
    back = unpacked(memoryview(packed(sample)))
    assert back["a"].tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(back["b"][0], torch.arange(3.0))
    assert back["b"][1:] == ("text", b"bytes", 7)
    assert back["c"][0].shape == (2, 2)
    back["b"][0][0] = 9.0  # a copy of its own
    with pytest.raises(ValueError, match="read-only"):
        unpacked(memoryview(packed(sample)).toreadonly())["a"][0] = 1


def test_kept_and_found_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "s", 10, MIB)
    assert shelf.get(3) is None
    assert shelf.put(3, {"x": np.arange(4)})
    assert Shelf(tmp_path / "s", 10, MIB).get(3)["x"].tolist() == [0, 1, 2, 3]
    assert len(shelf) == 1


def test_nothing_is_kept_beyond_the_limit(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "s", 100, 10_000)
    kept = [shelf.put(i, np.zeros(100)) for i in range(100)]
    assert 0 < sum(kept) < 100
    assert shelf.bytes <= 10_000
    assert kept == sorted(kept, reverse=True)


def test_a_broken_sample_is_not_given(tmp_path: Path) -> None:
    Shelf(tmp_path / "s", 10, MIB).put(3, np.arange(1000))
    (path,) = (tmp_path / "s").glob("*.kept")
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(bytes(data))
    shelf = Shelf(tmp_path / "s", 10, MIB)
    assert shelf.get(3) is None
    assert shelf.put(3, np.arange(1000))
    assert shelf.get(3)[999] == 999


def test_a_file_cut_short_is_not_read(tmp_path: Path) -> None:
    Shelf(tmp_path / "s", 10, MIB).put(3, np.arange(1000))
    (path,) = (tmp_path / "s").glob("*.kept")
    os.truncate(path, 100)
    assert Shelf(tmp_path / "s", 10, MIB).get(3) is None


def test_a_full_disk_ends_the_keeping(tmp_path: Path, monkeypatch: Any) -> None:
    shelf = Shelf(tmp_path / "s", 10, MIB)
    shelf.put(0, np.arange(10))

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert not shelf.put(1, np.arange(10))
    assert shelf.get(1) is None
    assert shelf.get(0).tolist() == list(range(10))


def write(folder: Path, first: int) -> None:
    shelf = Shelf(folder, 1000, 100 * MIB)
    for i in range(first, 1000, 3):
        shelf.put(i, np.full(1000, i))


def test_several_processes_keep_together(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    processes = [
        multiprocessing.get_context("fork").Process(target=write, args=(folder, k))
        for k in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    shelf = Shelf(folder, 1000, 100 * MIB)
    assert len(shelf) == 1000
    assert all((shelf.get(i) == i).all() for i in range(1000))


def forever(folder: Path) -> None:
    shelf = Shelf(folder, 10**6, 10**12)
    for i in range(10**6):
        shelf.put(i, np.full(1000, i))


def test_killed_while_it_writes_all_that_is_there_is_right(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    process = multiprocessing.get_context("fork").Process(target=forever, args=(folder,))
    process.start()
    process.join(0.7)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    shelf = Shelf(folder, 10**6, 10**12)
    count = len(shelf)
    assert count > 10
    assert all((shelf.get(i) == i).all() for i in range(count))


def test_the_shelf_is_named_by_what_is_on_it(tmp_path: Path) -> None:
    one = shelf_for(BatchMaker(Squares(), seed=0), tmp_path, None)[0].folder
    assert shelf_for(BatchMaker(Squares(), seed=1), tmp_path, None)[0].folder == one
    others = (
        BatchMaker(Squares(65), seed=0),
        BatchMaker(Squares(factor=2), seed=0),
        BatchMaker(Squares(), seed=0, prepare=lambda s: s["x"]),
    )
    assert one not in [shelf_for(other, tmp_path, None)[0].folder for other in others]


def test_random_samples_are_not_kept(tmp_path: Path) -> None:
    maker = BatchMaker(Squares(), seed=0, prepare=lambda s: s["x"] + np.random.rand())
    with pytest.raises(UsageError, match="prepared twice is not the same"):
        shelf_for(maker, tmp_path, None)


@pytest.mark.parametrize(("kind", "workers"), [("none", 0), ("threads", 2), ("processes", 2)])
def test_a_loader_draws_each_sample_once(tmp_path: Path, kind: str, workers: int) -> None:
    def moved(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "x": sample["x"] + rng.integers(9)}

    def epochs(source: Squares, **kwargs: Any) -> list[Any]:
        loader = Loader(source, 8, transform=moved, executor=kind, workers=workers, **kwargs)
        found = [(b["id"].tolist(), b["x"].tolist()) for _ in range(2) for b in loader]
        loader.close()
        return found

    want = epochs(Squares())
    assert epochs(Squares(), keep=tmp_path) == want
    source = Squares()
    assert epochs(source, keep=tmp_path) == want
    assert source.drawn < 64 + 30  # looked at a few times, as they are all kept


def test_a_source_that_changed_is_seen(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("outpace.serve.making.COMPARED", 4)
    source = Squares()
    loader = Loader(source, 8, executor="none", keep=tmp_path)
    list(loader)
    source.factor = 3
    second = {int(i): int(x[0, 0]) for b in loader for i, x in zip(b["id"], b["x"], strict=True)}
    assert "is not as it was kept" in capfd.readouterr().err
    assert sum(second[i] == 3 * i**2 for i in range(64)) > 10

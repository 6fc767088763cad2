from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from outpace.serve.loader import Loader
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
    tensors = [
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.empty(0, 3),
        torch.tensor(True),
        torch.arange(6).reshape(2, 3).t(),
        torch.ones(2, requires_grad=True),
    ]
    again = unpacked(memoryview(packed(tensors)))
    assert [(t.dtype, t.tolist()) for t in again] == [(t.dtype, t.tolist()) for t in tensors]
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
    assert shelf.taken <= 10_000
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


def test_a_file_cut_short_is_kept_anew(tmp_path: Path) -> None:
    Shelf(tmp_path / "s", 10, MIB).put(3, np.arange(1000))
    (path,) = (tmp_path / "s").glob("*.kept")
    os.truncate(path, 100)
    shelf = Shelf(tmp_path / "s", 10, MIB)
    assert shelf.get(3) is None
    assert shelf.put(3, np.arange(1000))
    assert shelf.get(3)[999] == 999


def test_a_write_that_the_disk_cuts_short_keeps_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    write = os.pwrite
    shelf = Shelf(tmp_path / "s", 10, MIB)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda to, data, start: write(to, data[:10], start))
        assert not shelf.put(1, np.arange(1000))
    assert shelf.get(1) is None
    assert len(Shelf(tmp_path / "s", 10, MIB)) == 0


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


def write_some(folder: Path, first: int, limit: int) -> None:
    shelf = Shelf(folder, 1000, limit)
    for i in range(first, 1000, 4):
        shelf.put(i, np.full(100, i))


def test_several_processes_keep_no_more_than_the_limit(tmp_path: Path) -> None:
    folder, limit = tmp_path / "s", 200_000
    processes = [
        multiprocessing.get_context("fork").Process(target=write_some, args=(folder, k, limit))
        for k in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    shelf = Shelf(folder, 1000, limit)
    on_disk = sum(path.stat().st_size for path in folder.glob("*.kept"))
    assert 0.9 * limit < on_disk <= shelf.taken <= limit
    assert all((kept == i).all() for i in range(1000) if (kept := shelf.get(i)) is not None)


def test_no_file_stays_open(tmp_path: Path) -> None:
    shelves = [Shelf(tmp_path / str(i), 10, MIB) for i in range(5)]
    for shelf in shelves:
        shelf.put(3, np.arange(5))
        assert shelf.get(3)[4] == 4
    del shelf
    shelves.clear()
    gc.collect()
    assert not [file for file in psutil.Process().open_files() if str(tmp_path) in file.path]


def test_what_is_given_up_is_given_to_no_one(tmp_path: Path) -> None:
    one, other = (Shelf(tmp_path / "s", 10, MIB) for _ in range(2))
    one.put(3, np.arange(5))
    assert other.get(3)[4] == 4
    one.give_up()
    for shelf in (one, other, Shelf(tmp_path / "s", 10, MIB)):
        assert shelf.get(3) is None
        assert not shelf.put(3, np.arange(5))
        assert not shelf.put(4, np.arange(5))


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


class Partly(Squares):
    """The samples that a shelf is named by stay as they are."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.factor, factor = (self.factor if index % 9 else 1), self.factor
        sample = super().__getitem__(index)
        self.factor = factor
        return sample


def test_what_was_found_to_have_changed_is_not_given_to_the_next_run(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("outpace.serve.making.COMPARED", 13)
    source = Partly()

    def first() -> dict[int, int]:
        loader = Loader(source, 8, executor="none", shuffle=False, keep=tmp_path)
        firsts = ((b["id"].tolist(), b["x"][:, 0, 0].tolist()) for b in loader)
        return {i: x for ids, xs in firsts for i, x in zip(ids, xs, strict=True)}

    assert first() == {i: i**2 for i in range(64)}
    source.factor = 3
    first()
    assert first() == {i: (3 if i % 9 else 1) * i**2 for i in range(64)}


class Boxes(torch.Tensor):
    """As torchvision's tv_tensors are."""

    canvas: tuple[int, int]


class Named(list[Any]):
    name = "none"


class Point(NamedTuple):
    x: Any
    y: Any


def test_classes_come_back(tmp_path: Path) -> None:
    boxes = torch.arange(4.0).as_subclass(Boxes)
    boxes.canvas = (3, 5)
    named = Named([1])
    named.name = "some"
    sample = {
        "boxes": boxes,
        "named": named,
        "ordered": OrderedDict(a=torch.ones(2)),
        "counts": defaultdict(list, a=[1]),
        "masked": np.ma.masked_less(np.arange(3.0), 1),
        "shape": torch.ones(2, 3).shape,
        "packed": pack_sequence([torch.arange(3), torch.arange(2)]),
        "point": Point(torch.ones(1), np.zeros(2)),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "sparse": torch.eye(2).to_sparse(),
    }
    shelf = Shelf(tmp_path / "s", 10, MIB)
    assert shelf.put(0, sample)
    back = shelf.get(0)
    assert {name: type(one) for name, one in back.items()} == {
        name: type(one) for name, one in sample.items()
    }
    assert back["boxes"].canvas == (3, 5)
    assert back["named"].name == "some"
    assert back["counts"]["b"] == []
    assert back["masked"].mask.tolist() == [True, False, False]
    assert torch.equal(back["packed"].data, sample["packed"].data)
    assert torch.equal(back["sparse"].to_dense(), torch.eye(2))


def test_kept_samples_are_of_their_classes_in_every_epoch(tmp_path: Path) -> None:
    def prepare(sample: Any) -> Any:
        return OrderedDict(x=torch.ones(2).as_subclass(Boxes))

    kinds = []
    loader = Loader(
        Squares(8), 4, prepare=prepare, executor="none", keep=tmp_path, collate=lambda some: some
    )
    for _ in range(2):
        kinds += [(type(one), type(one["x"])) for batch in loader for one in batch]
    assert set(kinds) == {(OrderedDict, Boxes)}


def test_what_lay_in_a_file_that_is_gone_is_kept_anew(tmp_path: Path) -> None:
    writing = Shelf(tmp_path / "s", 10, MIB)
    writing.put(3, np.arange(5))
    for path in (tmp_path / "s").glob("*.kept"):
        path.unlink()
    for shelf in (Shelf(tmp_path / "s", 10, MIB), writing):
        assert shelf.get(3) is None
        assert shelf.put(3, np.arange(5))
        assert shelf.get(3).tolist() == [0, 1, 2, 3, 4]
        shelf.index[3, 0] = 0


@pytest.mark.parametrize("kind", ["none", "threads"])
def test_who_writes_to_a_kept_sample_writes_to_nothing_that_is_kept(
    tmp_path: Path, kind: str
) -> None:
    """As torch does to any array, and with a crash to what is mapped."""

    def tripled(sample: dict[str, Any]) -> dict[str, Any]:
        sample["x"] *= 3
        torch.from_numpy(sample["x"]).add_(1)
        return sample

    loader = Loader(Squares(), 8, transform=tripled, executor=kind, workers=1, keep=tmp_path)
    for _ in range(3):
        for batch in loader:
            assert batch["x"][:, 0, 0].tolist() == (3 * batch["id"] ** 2 + 1).tolist()
    loader.close()

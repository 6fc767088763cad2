from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, StackDataset, Subset

from outpace.serve import open_files
from outpace.serve.loader import Loader
from outpace.serve.open_files import Unopened, holds_open_file, none_drawn, none_opened
from outpace.serve.probe import gather_time, making_time, probe


class OpenedLate(Dataset[int]):
    """Opens its file when the first sample is drawn."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(64))
        self.path = path
        self.file: BinaryIO | None = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = self.path.open("rb")
        self.file.seek(index)
        return self.file.read(1)[0]


@pytest.mark.parametrize(
    "tried", [probe, making_time, lambda loader: gather_time(loader, "cache", 1 << 20)]
)
def test_a_data_set_that_was_tried_opens_its_file_again(tmp_path: Path, tried: Any) -> None:
    """Else workers that are forked afterwards would share it."""
    data = OpenedLate(tmp_path / "numbers")
    tried(DataLoader(Subset(data, range(32)), batch_size=8))
    assert data.file is None


def test_what_was_open_before_stays_open(tmp_path: Path) -> None:
    data = OpenedLate(tmp_path / "numbers")
    data[0]
    file = data.file
    probe(DataLoader(data, batch_size=8))
    assert data.file is file
    assert holds_open_file(Subset(Subset(data, range(4)), range(2)))


def test_arrays_in_an_archive_are_read_by_one_at_a_time(tmp_path: Path) -> None:
    """Forks that read from one file would move each other's place in it."""
    np.savez(tmp_path / "a.npz", x=np.arange(9), y=np.arange(3))
    data: Any = OpenedLate(tmp_path / "numbers")
    data.arrays = np.load(tmp_path / "a.npz")
    with data.arrays:
        assert holds_open_file(data)


def names_of(files: Any) -> list[str]:
    return [file.name for file in files]


class OpenedTogether(OpenedLate):
    """Opens all its files with the first sample, and further ones by their name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.files: list[BinaryIO] | None = None
        self.by_name: dict[str, Any] = {"none": None}
        self.others: list[Any] = [1]

    def __getitem__(self, index: int) -> int:
        if self.files is None:
            self.files = [self.path.open("rb")]
            self.others += self.files * 2
        self.by_name.setdefault("a", self.files[0])
        assert names_of([*self.files, self.by_name["a"]]) == [str(self.path)] * 2
        return super().__getitem__(index)


def test_files_of_several_data_sets_and_in_lists_are_seen(tmp_path: Path) -> None:
    parts = [OpenedLate(tmp_path / "a"), OpenedTogether(tmp_path / "b")]
    data = StackDataset(first=ConcatDataset(parts))
    unopened = Unopened(data)
    for index in (0, 64):
        data[index]
    assert holds_open_file(data)
    unopened.put_back()
    assert not holds_open_file(data)
    assert [part.file for part in parts] == [None, None]
    assert vars(parts[1])["files"] is None
    assert vars(parts[1])["by_name"] == {"none": None}
    assert vars(parts[1])["others"] == [1]
    data[64]
    kept = vars(parts[1])["files"]
    with none_opened(data):
        data[0]
    assert not kept[0].closed
    assert vars(parts[1])["files"] is kept
    assert parts[0].file is None


def test_of_a_long_list_the_beginning_is_looked_at(tmp_path: Path) -> None:
    data: Any = OpenedLate(tmp_path / "a")
    data.rows = [[str(i)] * 2000 for i in range(2000)]
    data[0]
    assert holds_open_file(data)
    data.file = None
    assert not holds_open_file(data)
    assert sum(1 for _ in open_files._held(data)) <= open_files.MOST


class ReadLate(OpenedLate):
    """Reads an index with the first sample, and tells so by a flag."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.index: list[int] | None = None
        self.ready = False
        self.names = ["a"]

    def __getitem__(self, index: int) -> int:
        if not self.ready:
            self.index, self.ready = list(range(64)), True
            self.lengths = [1] * 64
        assert self.index is not None
        return self.index[index] * self.lengths[index]


def test_what_was_read_with_the_first_sample_is_read_again(tmp_path: Path) -> None:
    """By each worker, as in a run in which nobody has drawn samples before they began."""
    data = ReadLate(tmp_path / "numbers")
    names = data.names
    with none_drawn(Subset(data, range(8))):
        data[3]
        assert data.index is not None
    assert (data.index, data.ready, data.names) == (None, False, names)
    assert not hasattr(data, "lengths")
    assert data[3] == 3
    with none_drawn(data):
        data[4]
    assert data.index is not None, "it was there before"


class WithAPool(ReadLate):
    """Asks threads of its own, which it makes with the first sample."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.pool: ThreadPoolExecutor | None = None

    def __getitem__(self, index: int) -> int:
        if self.pool is None:
            self.pool = ThreadPoolExecutor(1)
        return self.pool.submit(super().__getitem__, index).result()


def test_a_pool_of_threads_is_left_to_each_worker_to_make(tmp_path: Path) -> None:
    """In a fork it has no threads, and whoever asks it waits for ever."""
    data = WithAPool(tmp_path / "numbers")
    loader = Loader(data, 8, executor="processes", workers=2)
    with closing(loader):
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(len(data)))
        assert data.pool is None
    unopened = Unopened(data)
    data[0]
    unopened.for_forks()
    assert data.pool is None


class Indexed(OpenedLate):
    """Tells by offsets, which it reads on opening, that its file is open."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.offsets: list[int] | None = None
        self.augment = False
        self.kept: list[int] | None = None

    def _open(self) -> None:
        self.file = self.path.open("rb")

    def __getitem__(self, index: int) -> int:
        if self.offsets is None:
            self._open()
            self.offsets = list(range(64))
        assert self.file is not None
        self.file.seek(self.offsets[index])
        return self.file.read(1)[0]


def test_what_the_script_has_set_meanwhile_stays(tmp_path: Path) -> None:
    """It drew a sample too, between two epochs, for which the data set opened its file."""
    data: Any = Indexed(tmp_path / "numbers")
    unopened = Unopened(data)
    data.augment, data.kept, data.strength = True, [1, 2], 2
    data[3]
    unopened.close_again()
    assert (data.augment, data.kept, data.strength) == (True, [1, 2], 2)
    assert (data.file, data.offsets) == (None, None)
    assert data[3] == 0


class Reader:
    """What a data set of one's own may read by."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: BinaryIO | None = None
        self.ready = False

    def read(self, index: int) -> int:
        if not self.ready:
            self.file, self.ready = self.path.open("rb"), True
        assert self.file is not None
        self.file.seek(index)
        return self.file.read(1)[0]


class ByReaders(Dataset[int]):
    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(64))
        self.readers = [Reader(path)]
        self.others: Any = [Reader(path) for _ in range(open_files.FEW + 1)]

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return self.readers[0].read(index)


def test_files_in_objects_of_the_users_are_seen(tmp_path: Path) -> None:
    data = ByReaders(tmp_path / "numbers")
    with none_opened(data):
        data[0]
        assert holds_open_file(data)
    assert (data.readers[0].file, data.readers[0].ready) == (None, False)
    data.others[0].read(0)
    assert not holds_open_file(data), "one of many"
    data[3]
    assert holds_open_file(data)


def test_of_what_is_too_much_to_be_looked_at_nothing_is_let_go(tmp_path: Path) -> None:
    data: Any = OpenedLate(tmp_path / "numbers")
    data.rows = [[str(i)] * 2000 for i in range(2000)]
    data.named = {"a": 1}
    with none_drawn(data):
        data[0]
        data.rows[0] = ["b"]
        data.named["c"] = 2
    assert data.file is None
    assert data.rows[0] == ["b"]
    assert data.named in ({"a": 1}, {"a": 1, "c": 2})


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("soundfile.SoundFile", True),
        ("cv2.VideoCapture", True),
        ("cv2.CLAHE", False),
        ("pandas.io.pytables.HDFStore", True),
        ("pandas.core.frame.DataFrame", False),
        ("h5py._hl.files.File", True),
        ("h5pyd.File", False),
    ],
)
def test_files_of_libraries_are_known_by_their_types(name: str, opened: bool) -> None:
    module, _, kind = name.rpartition(".")
    data: Any = ConcatDataset([range(3)])  # type: ignore[list-item]
    data.file = type(kind, (), {"__module__": module})()
    assert holds_open_file(data) == opened

"""Files whose place is shared, whatever holds them: here a descriptor, as of a library in C."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from outpace.seams.setup import Feed
from outpace.serve import place_in_file
from outpace.serve.feeds import make_feed
from outpace.serve.loader import Loader
from outpace.serve.open_files import holds_open_file
from outpace.serve.place_in_file import moves_place

pytestmark = pytest.mark.skipif(
    not Path(place_in_file.DESCRIPTORS).is_dir(), reason="the system lists no descriptors"
)


class Seeking(Dataset[int]):
    """Holds a number that nobody takes for a file."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(range(64)))
        self.opened = os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        os.lseek(self.opened, index, os.SEEK_SET)
        return os.read(self.opened, 1)[0]


class Reading(Seeking):
    """Reads without a place."""

    def __getitem__(self, index: int) -> int:
        return os.pread(self.opened, 1, index)[0]


class Noting(Reading):
    """Writes down what it reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.noted = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)

    def __getitem__(self, index: int) -> int:
        os.write(self.noted, b".")
        return super().__getitem__(index)


@pytest.mark.parametrize(("kind", "moves"), [(Seeking, True), (Reading, False), (Noting, False)])
def test_a_place_that_moves_is_shared(tmp_path: Path, kind: Any, moves: bool) -> None:
    data = kind(tmp_path / "numbers")
    assert not holds_open_file(data)
    assert moves_place(data, data.__getitem__) == moves
    loader = DataLoader(data, batch_size=8)
    for executor in ("threads", "processes"):
        feed = Feed(executor=executor, workers=2)  # type: ignore[arg-type]
        if moves:
            with pytest.raises(NotImplementedError, match="keeps a file open"):
                make_feed(loader, feed)
        else:
            make_feed(loader, feed).close()
    # Its own workers share the place already.
    make_feed(DataLoader(data, batch_size=8, num_workers=2), feed).close()


def test_the_loader_makes_such_batches_where_they_are_drawn(tmp_path: Path) -> None:
    loader = Loader(Seeking(tmp_path / "numbers"), 8, shuffle=False)
    assert torch.cat(list(loader)).tolist() == list(range(64))
    assert loader.choice is not None
    assert loader.choice.kind == "none"
    assert "keeps a file open" in loader.choice.reason


def test_no_sample_is_drawn_where_no_file_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_in_file, "_places", dict)
    drawn: list[int] = []
    assert not moves_place(range(9), drawn.append)
    assert not drawn


def test_what_is_printed_moves_no_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = Reading(tmp_path / "numbers")

    def draw(index: int) -> None:
        print(index, data[index])
        sys.stdout.flush()

    assert not moves_place(data, draw)
    assert capfd.readouterr().out == "0 0\n32 32\n63 63\n"


def test_what_fails_is_told_of_later(tmp_path: Path) -> None:
    data = Seeking(tmp_path / "numbers")

    def draw(index: int) -> int:
        if index == 0:
            raise OSError("sample 0 is broken")
        return data[index]

    assert moves_place(data, draw)


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
def test_what_another_thread_reads_is_not_the_data_sets(tmp_path: Path, pause_s: float) -> None:
    other, over = Seeking(tmp_path / "other"), threading.Event()

    def read() -> None:
        index = 0
        while not over.wait(pause_s):
            index = (index + 1) % 60
            other[index]

    thread = threading.Thread(target=read)
    thread.start()
    still, seeking = Reading(tmp_path / "still"), Seeking(tmp_path / "seeking")

    def slowly(index: int) -> int:
        time.sleep(0.1)
        return still[index]

    try:
        assert not moves_place(still, slowly)
        assert moves_place(seeking, seeking.__getitem__)
    finally:
        over.set()
        thread.join()


def test_a_file_of_another_thread_that_moves_once(tmp_path: Path) -> None:
    data, other = Reading(tmp_path / "numbers"), Seeking(tmp_path / "other")
    drawn: list[int] = []

    def draw(index: int) -> int:
        if not drawn:
            other[7]
        drawn.append(index)
        return data[index]

    assert not moves_place(data, draw)
    assert drawn == [0, 32, 63, 0]


def test_all_of_a_file_is_read_only_once(tmp_path: Path) -> None:
    """As a library in C does that reads a whole buffer ahead."""
    data = Seeking(tmp_path / "numbers")
    read: list[bytes] = []

    def draw(index: int) -> int:
        if not read:
            read.append(os.read(data.opened, 4096))
        return read[0][index]

    assert moves_place(data, draw)
    one = Seeking(tmp_path / "one")
    assert moves_place(range(1), one.__getitem__)

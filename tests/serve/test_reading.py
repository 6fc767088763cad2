from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outpace.errors import DataError
from outpace.serve.reading import ReadAt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(bytes(range(100)))
    return tmp_path / "data"


@pytest.mark.parametrize("keep", [True, False])
def test_bytes_at_a_place(path: Path, keep: bool) -> None:
    read = ReadAt(path, keep)
    assert read(7, 3) == bytes([7, 8, 9])
    assert read(0, 0) == b""
    with pytest.raises(DataError, match=r"data: ends before byte 101"):
        read(98, 3)
    with pytest.raises(DataError, match=r"nowhere: No such file"):
        ReadAt(path.with_name("nowhere"), keep)(0, 1)


def test_threads_that_open_it_at_once_keep_one_descriptor(path: Path, monkeypatch: Any) -> None:
    at_once, real = threading.Barrier(4), os.open
    opened: list[int] = []

    def late(*args: Any) -> int:
        descriptor = real(*args)
        opened.append(descriptor)
        at_once.wait()
        return descriptor

    monkeypatch.setattr(os, "open", late)
    reads = [ReadAt(path)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: reads[0](i, 1), range(4)))
    assert found == [bytes([i]) for i in range(4)]

    def is_open(descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(path))
        except OSError:
            return False

    assert len(set(opened)) == 4
    assert sum(map(is_open, opened)) == 1
    reads.clear()
    assert sum(map(is_open, opened)) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_a_fork_does_not_read_another_file_of_that_name(path: Path, keep: bool) -> None:
    read = ReadAt(path, keep)
    assert read(7, 1) == bytes([7])
    path.rename(path.with_name("before"))
    path.write_bytes(bytes(100))
    child = os.fork()
    if not child:
        try:
            read(7, 1)
            os._exit(1)
        except DataError as error:
            os._exit(2 if "data: it was replaced since it was opened" in error.message else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    if keep:
        assert read(7, 1) == bytes([7])

from __future__ import annotations

import contextlib
import functools
import http.server
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import fsspec
import pytest

from outpace.errors import DataError
from outpace.serve import packing, remote
from outpace.serve.files import Files
from outpace.serve.loader import Loader
from outpace.serve.pack import Forecast, pack
from outpace.serve.records import RecordsWriter
from outpace.serve.remote import Remote
from outpace.serve.sources import open_source
from outpace.serve.verify import verify


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder late, and fails for some of the requests."""

    delay_s = 0.0
    failing: ClassVar[dict[str, int]] = {}
    cut: ClassVar[dict[str, int]] = {}
    """paths, and how often the connection is reset"""

    def do_GET(self) -> None:
        if self.cut.get(self.path.rstrip("/"), 0) > 0:
            self.cut[self.path.rstrip("/")] -= 1
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()
            return
        time.sleep(self.delay_s)
        if self.failing.get(self.path, 0) > 0:
            self.failing[self.path] -= 1
            self.send_error(503)
            return
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    for name in ("a/0.txt", "a/1.txt", "b/2.txt", "b/3.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    Handler.failing, Handler.cut, Handler.delay_s = {}, {}, 0.0
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))
    )
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: Any) -> None:
    monkeypatch.setattr("outpace.serve.remote.FIRST_PAUSE_S", 0.01)


def test_files_behind_an_address(address: str) -> None:
    source = Remote(address)
    assert source.classes == ("a", "b")
    assert [source[i] for i in range(4)] == [
        {"__key__": "a/0", "txt": b"a/0.txt", "cls": 0},
        {"__key__": "a/1", "txt": b"a/1.txt", "cls": 0},
        {"__key__": "b/2", "txt": b"b/2.txt", "cls": 1},
        {"__key__": "b/3", "txt": b"b/3.txt", "cls": 1},
    ]


def test_they_are_the_samples_of_a_folder(address: str, tmp_path: Path) -> None:
    for name in ("README", "a/x.JPEG", ".DS_Store", ".git/config", "é/50% of #1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source, files = Remote(address), Files(tmp_path)
    assert source.classes == files.classes == ("a", "b", "é")
    assert [source[i] for i in range(len(source))] == [files[i] for i in range(len(files))]
    assert len(source) == 7
    assert source.where(6) == f"{address}/%C3%A9/50%25%20of%20%231.txt"


@pytest.mark.parametrize("suffix", ["tar", "parquet"])
def test_tars_and_tables_are_refused(address: str, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "shards").mkdir()
    for name in (f"0.{suffix}", f"1.{suffix}", "sizes.json"):
        (tmp_path / "shards" / name).write_text("x")
    with pytest.raises(DataError, match=rf"/shards holds ta\w+s: 0\.{suffix}, 1\.{suffix}") as told:
        Remote(f"{address}/shards")
    assert "copy them to a disk first" in str(told.value.hint)


def test_they_are_packed_by_several_threads(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jobs = packing.in_order, []

    def counting(function: Any, items: Any, count: int) -> Any:
        jobs.append(count)
        return real(function, items, count)

    monkeypatch.setattr(packing, "in_order", counting)
    with TemporaryDirectory() as elsewhere:
        pack(address, Path(elsewhere, "packed"))
        assert jobs == [8]
        found = verify(Path(elsewhere, "packed"), lambda phase, done, total: None)
        assert (found.source, found.right) == ("address", True)


@pytest.mark.parametrize(("kind", "workers"), [("none", 0), ("threads", 3), ("processes", 2)])
def test_a_loader_reads_them(address: str, kind: Any, workers: int) -> None:
    with contextlib.closing(Loader(address, 2, executor=kind, workers=workers)) as loader:
        assert sorted(int(c) for batch in loader for c in batch["cls"]) == [0, 0, 1, 1]


@pytest.mark.parametrize("store", ["http", "memory"])
def test_an_address_whose_files_have_changed_is_packed_anew(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """Of the web only names tell; neither file is among those that are read before packing begins."""
    monkeypatch.setattr(packing, "EVERY_S", 0)
    memory = fsspec.filesystem("memory")
    url = f"{address}/many" if store == "http" else f"memory:/{tmp_path}"

    def put(name: str, content: str) -> None:
        if store == "memory":
            memory.pipe(f"{tmp_path}/{name}", content.encode())
        else:
            (tmp_path / "many" / name).write_text(content)

    (tmp_path / "many").mkdir()
    for number in range(40):
        put(f"{number:02}.txt", "old")
    told: list[Forecast] = []
    with TemporaryDirectory() as elsewhere:
        with monkeypatch.context() as at_end:
            at_end.setattr(RecordsWriter, "finish", Mock(side_effect=OSError(28, "full")))
            with pytest.raises(DataError, match="the disk is full"):
                pack(url, Path(elsewhere, "packed"))
        put("04.txt", "new")
        if store == "http":
            (tmp_path / "many" / "04.txt").rename(tmp_path / "many" / "04b.txt")
        pack(url, Path(elsewhere, "packed"), begin=told.append)
        found = open_source(Path(elsewhere, "packed"))[4]
    assert told[0].note == "an earlier attempt is thrown away: the source has changed since"
    assert found["txt"] == b"new"


def test_what_fails_is_tried_again(address: str) -> None:
    source = Remote(address)
    Handler.failing = {"/a/1.txt": 3}
    assert source[1]["txt"] == b"a/1.txt"


def test_what_goes_on_failing_is_named(address: str) -> None:
    source = Remote(address)
    Handler.failing = {"/a/1.txt": 99}
    with pytest.raises(DataError, match=r"a/1.txt could not be read in 4 tries.*503"):
        source[1]
    skipping = Loader(source, 2, executor="none", on_error="skip")
    assert sum(len(batch["cls"]) for batch in skipping) == 3
    assert [s.where for s in skipping.skipped] == [f"{address}/a/1.txt"]


def test_what_took_long_to_fail_is_not_tried_again(address: str, monkeypatch: Any) -> None:
    now = itertools.count(step=4.0)
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=id))
    source = Remote(address)
    Handler.failing = {"/a/1.txt": 99}
    with pytest.raises(DataError, match=r"a/1.txt could not be read in 3 tries"):
        source[1]
    assert Handler.failing == {"/a/1.txt": 96}


def test_what_is_gone_is_named(address: str, tmp_path: Path) -> None:
    source = Remote(address)
    (tmp_path / "b" / "2.txt").unlink()
    with pytest.raises(DataError, match=r"b/2.txt is not there"):
        source[2]


def test_a_folder_that_cannot_be_listed_is_tried_again_and_named(address: str) -> None:
    """Without it the folders after it would be other classes."""
    Handler.cut = {"/a": 2}
    assert Remote(address).classes == ("a", "b")
    Handler.cut = {"/a": 99}
    with pytest.raises(DataError, match=r"/a could not be read in 4 tries"):
        Remote(address)


def test_links_that_sort_a_page_are_no_files(address: str, tmp_path: Path) -> None:
    names = "?C=N;O=D", "?C=M;O=A/", "0.txt", "1.txt", "#top", "50%25%3F.txt"
    page = "".join(f'<a href="{name}">{name}</a>' for name in names)
    (tmp_path / "a/index.html").write_text(page)
    assert [*Remote(f"{address}/a").names] == ["0.txt", "1.txt", "50%?.txt"]


def test_an_address_without_files(address: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no files"):
        Remote(f"{address}/empty")
    with pytest.raises(DataError, match="nosuch://x"):
        Remote("nosuch://x")

"""Sources on S3, against moto's server, which runs in a thread here and can be told to fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from outpace.errors import DataError, MissingExtra
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.remote import Remote
from outpace.serve.sources import open_source

NAMES = ("a/0.txt", "a/1.txt", "b/2.txt", "b/3.txt")


class Server:
    """``failing``: path -> how, and how many times. ``delay_s``: before each answer."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.failing: dict[str, tuple[str, int]] = {}
        self.delay_s = 0.0
        self.at_once = self.most_at_once = 0

    def __call__(self, request: dict[str, Any], start: Any) -> Any:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.delay_s)
        try:
            return self._answer(request, start)
        finally:
            self.at_once -= 1

    def _answer(self, request: dict[str, Any], start: Any) -> Any:
        path = request["PATH_INFO"]
        how, left = self.failing.get(path, ("", 0))
        if not left or request["REQUEST_METHOD"] != "GET":
            return self.app(request, start)
        self.failing[path] = how, left - 1
        if how == "cut":
            start("200 OK", [("Content-Length", "7")])
            return [b"a/1"]
        start(f"{how} Failed", [("Content-Type", "application/xml")])
        code = {"403": "AccessDenied", "500": "InternalError", "503": "SlowDown"}[how]
        return [f"<Error><Code>{code}</Code><Message>failed</Message></Error>".encode()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any, **__: Any) -> None:
            pass

    faulty = Server(DomainDispatcherApplication(create_backend_app))
    serving = make_server("127.0.0.1", 0, faulty, threaded=True, request_handler=Quiet)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{serving.server_port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",  # they try again by themselves: not what is tested here
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    bucket = boto3.resource("s3").create_bucket(Bucket="bucket")
    for name in NAMES:
        bucket.put_object(Key=f"data/{name}", Body=name.encode())
    yield faulty
    bucket.objects.all().delete()  # moto's buckets outlive a server
    bucket.delete()
    serving.shutdown()
    serving.server_close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.serve.remote.FIRST_PAUSE_S", 0.01)


def test_objects_are_samples_and_prefixes_classes(server: Server) -> None:
    source = Remote("s3://bucket/data")
    assert source.classes == ("a", "b")
    assert source[2] == {"__key__": "b/2", "txt": b"b/2.txt", "cls": 1}
    assert source.where(2) == "s3://bucket/data/b/2.txt"


def test_an_object_that_stands_for_a_folder_is_no_sample(server: Server) -> None:
    import boto3

    for name in ("data/", "data/a/"):
        boto3.client("s3").put_object(Bucket="bucket", Key=name, Body=b"")
    source = Remote("s3://bucket/data")
    assert tuple(source.names) == NAMES
    assert source.classes == ("a", "b")


@pytest.mark.parametrize(("kind", "workers"), [("none", 0), ("threads", 3), ("processes", 2)])
def test_a_loader_reads_them(server: Server, kind: Any, workers: int) -> None:
    with closing(Loader("s3://bucket/data", 1, executor=kind, workers=workers)) as loader:
        assert sorted(int(c) for batch in loader for c in batch["cls"]) == [0, 0, 1, 1]


def test_threads_wait_for_several_answers_at_once(server: Server) -> None:
    server.delay_s = 0.2
    with closing(Loader("s3://bucket/data", 1, executor="threads", workers=3)) as loader:
        server.most_at_once = 0
        assert sum(len(batch["cls"]) for batch in loader) == 4
    assert server.most_at_once > 1


@pytest.mark.parametrize("how", ["500", "503", "cut"])
def test_what_fails_is_tried_again(server: Server, how: str) -> None:
    source = Remote("s3://bucket/data")
    server.failing = {"/bucket/data/a/1.txt": (how, 2)}
    assert source[1]["txt"] == b"a/1.txt"


@pytest.mark.parametrize(("how", "told"), [("500", "failed"), ("cut", "3 of 7")])
def test_what_goes_on_failing_is_named_and_skipped(server: Server, how: str, told: str) -> None:
    source = Remote("s3://bucket/data")
    server.failing = {"/bucket/data/a/1.txt": (how, 999)}
    loader = Loader(source, 2, executor="none", on_error="skip", shuffle=False)
    assert [batch["__key__"] for batch in loader] == [["a/0"], ["b/2", "b/3"]]
    ((_, where, reason),) = loader.skipped
    assert where == "s3://bucket/data/a/1.txt"
    assert f"{where} could not be read in 4 tries: " in reason
    assert told in reason


def test_what_is_gone_or_forbidden_is_told_at_once(server: Server) -> None:
    import boto3

    source = Remote("s3://bucket/data")
    boto3.client("s3").delete_object(Bucket="bucket", Key="data/b/2.txt")
    with pytest.raises(DataError, match=r"b/2.txt is not there"):
        source[2]
    server.failing = {"/bucket/data/a/1.txt": ("403", 1)}
    with pytest.raises(DataError, match=r"a/1.txt may not be read"):
        source[1]


def test_addresses_without_objects(server: Server) -> None:
    with pytest.raises(DataError, match="s3://bucket/nothing holds no files"):
        Remote("s3://bucket/nothing")
    with pytest.raises(DataError, match="s3://nowhere/data is not there"):
        Remote("s3://nowhere/data")


def test_they_pack(server: Server, tmp_path: Any) -> None:
    assert pack("s3://bucket/data", tmp_path / "packed").count == 4
    packed, source = open_source(tmp_path / "packed"), Remote("s3://bucket/data")
    assert [packed[i] for i in range(4)] == [source[i] for i in range(4)]


def test_without_s3fs_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(MissingExtra, match="'s3fs'") as told:
        Remote("s3://bucket/data")
    assert told.value.hint == "pip install 'outpace[s3]'"

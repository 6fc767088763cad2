"""A run that is thrown away sees what it wrote; the user's files stay as they were."""

# Calls are looked up when they are made, since they are replaced meanwhile; some of them fail.
# ruff: noqa: PLW0108, SIM115

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib
import io
import os
import posix
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outpace.seams.writes import install, written_in
from outpace.seams.writes.commands import plain_words


def everything(folder: Path) -> dict[str, Any]:
    """What a folder really holds, whatever is installed."""
    found: dict[str, Any] = {}
    for name in sorted(posix.listdir(folder)):
        path = f"{folder}/{name}"
        if os.path.stat.S_ISLNK(posix.lstat(path).st_mode):  # type: ignore[attr-defined]
            found[name] = ("link", posix.readlink(path))
        elif os.path.stat.S_ISDIR(posix.lstat(path).st_mode):  # type: ignore[attr-defined]
            found[name] = everything(Path(path))
        else:
            fd = posix.open(path, os.O_RDONLY)
            found[name] = (posix.read(fd, 1 << 20), posix.lstat(path).st_mtime_ns)
            posix.close(fd)
    return found


def written(project: Path) -> list[str]:
    """Files that were written in the run, and are still there."""
    return written_in(project.parent / "scratch")[0]


def fill(folder: Path) -> None:
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "out" / "model.pt").write_text("old weights")
    (folder / "out" / "deep" / "a.txt").write_text("a")
    (folder / "log.txt").write_text("first\n")
    (folder / "data" / "x.txt").write_text("x")
    (folder / "latest").symlink_to("out")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with files, as the working directory of a run whose writes are redirected."""
    folder = tmp_path / "project"
    folder.mkdir()
    fill(folder)
    monkeypatch.chdir(folder)
    before = everything(folder)
    undo = install(tmp_path / "scratch", [tmp_path / "session"])
    try:
        yield folder
    finally:
        undo()
        posix.chdir(folder)
        assert everything(folder) == before
        assert builtins.open is io.open
        assert os.stat is posix.stat
        assert os.open is posix.open


def test_what_is_written_is_read_again(project: Path) -> None:
    with open("out/model.pt", "w") as file:
        file.write("new weights")
        assert file.name == "out/model.pt"
    assert Path("out/model.pt").read_text() == "new weights"
    assert (project / "latest" / "model.pt").read_text() == "new weights"
    assert os.path.getsize("out/model.pt") == len("new weights")
    assert written(project) == [str(project / "out" / "model.pt")]


def test_appending_goes_on_from_the_file(project: Path) -> None:
    for word in ("second", "third"):
        with open("log.txt", "a") as file:
            print(word, file=file)
    assert Path("log.txt").read_text() == "first\nsecond\nthird\n"


def test_folders(project: Path) -> None:
    os.makedirs("runs/one/two")
    Path("runs/one/result.txt").write_text("1")
    os.makedirs("runs/one", exist_ok=True)
    with pytest.raises(FileExistsError):
        os.mkdir("out")
    Path("out/new.txt").touch()
    assert sorted(os.listdir("out")) == ["deep", "model.pt", "new.txt"]
    assert sorted(e.name for e in os.scandir("out") if e.is_file()) == ["model.pt", "new.txt"]
    assert sorted(map(str, Path().rglob("*.txt"))) == [
        "data/x.txt",
        "log.txt",
        "out/deep/a.txt",
        "out/new.txt",
        "runs/one/result.txt",
    ]
    assert [(d, len(f)) for d, _, f in os.walk("runs")] == [
        ("runs", 0),
        ("runs/one", 1),
        ("runs/one/two", 0),
    ]


def test_deleting(project: Path) -> None:
    os.remove("log.txt")
    shutil.rmtree("out")
    assert not os.path.exists("log.txt")
    assert not os.path.lexists("out/model.pt")
    assert sorted(os.listdir()) == ["data", "latest"]
    with pytest.raises(FileNotFoundError) as caught:
        open("log.txt")
    assert caught.value.filename == "log.txt"
    with pytest.raises(FileNotFoundError):
        open("out/model.pt", "w")
    os.mkdir("out")
    assert os.listdir("out") == []
    Path("out/model.pt").write_text("again")
    assert os.listdir("latest") == ["model.pt"]


def test_the_usual_ways_to_replace_a_checkpoint(project: Path) -> None:
    Path("out/model.tmp").write_text("newer")
    os.replace("out/model.tmp", "out/model.pt")
    assert sorted(os.listdir("out")) == ["deep", "model.pt"]
    assert Path("out/model.pt").read_text() == "newer"
    shutil.copy("out/model.pt", "out/best.pt")
    shutil.move("out/deep", "out/deeper")
    assert Path("out/deeper/a.txt").read_text() == "a"
    assert not Path("out/deep").exists()
    with tempfile.NamedTemporaryFile("w", dir="out", delete=False) as file:
        file.write("temporary")
    Path(file.name).rename("out/model.pt")
    assert Path("out/model.pt").read_text() == "temporary"
    Path("current").symlink_to("out/best.pt")
    assert Path("current").read_text() == "newer"
    names = ("out/model.pt", "out/best.pt", "out/deeper/a.txt", "current")
    assert written(project) == [str(project / name) for name in names]


def test_errors_are_those_of_the_system(project: Path) -> None:
    for call, error in [
        (lambda: open("nowhere/file", "w"), FileNotFoundError),
        (lambda: open("out", "w"), IsADirectoryError),
        (lambda: open("log.txt", "x"), FileExistsError),
        (lambda: os.rmdir("out"), OSError),
        (lambda: os.rmdir("log.txt"), NotADirectoryError),
        (lambda: os.unlink("nothing"), FileNotFoundError),
        (lambda: os.rename("nothing", "other"), FileNotFoundError),
        (lambda: os.rename("log.txt", "out"), IsADirectoryError),
        (lambda: open(3.5), TypeError),
        (lambda: os.stat("a\0b"), ValueError),
    ]:
        with pytest.raises(error):
            call()
    assert written(project) == []


def test_metadata(project: Path) -> None:
    os.chmod("log.txt", 0o600)
    os.utime("log.txt", (1, 1))
    os.truncate("log.txt", 2)
    assert (os.stat("log.txt").st_mode & 0o777, os.stat("log.txt").st_mtime) == (0o600, 1.0) or (
        os.stat("log.txt").st_mode & 0o777 == 0o600
    )
    assert Path("log.txt").read_text() == "fi"


def test_the_mode_of_a_folder_is_no_file_that_was_written(project: Path) -> None:
    os.chmod("out", 0o700)
    os.utime("data", (1, 1))
    assert written(project) == []
    os.chmod("log.txt", 0o600)
    assert written(project) == [str(project / "log.txt")]


def test_working_in_a_folder_of_the_run(project: Path) -> None:
    os.makedirs("runs/one")
    os.chdir("runs/one")
    assert os.getcwd() == str(project / "runs" / "one")
    Path("here.txt").write_text("here")
    assert Path("../../log.txt").read_text() == "first\n"
    assert os.path.abspath("here.txt") == str(project / "runs" / "one" / "here.txt")
    os.chdir("../..")
    assert Path.cwd() == project
    assert Path("runs/one/here.txt").read_text() == "here"


def test_folders_that_may_be_written_to(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    (session / "evidence.json").write_text("{}")
    shutil.copy("log.txt", session / "log.txt")
    os.rename(session / "log.txt", "moved.txt")
    assert Path("moved.txt").read_text() == "first\n"
    os.rename("out/model.pt", session / "model.pt")
    assert not os.path.exists("out/model.pt")
    with open("/dev/null", "w") as file:
        file.write("x")
    assert sorted(posix.listdir(session)) == ["evidence.json", "model.pt"]


def test_descriptors(project: Path) -> None:
    fd = os.open("log.txt", os.O_RDWR)
    os.write(fd, b"FIRST")
    os.close(fd)
    assert Path("log.txt").read_bytes() == b"FIRST\n"
    folder = os.open("out", os.O_RDONLY)
    with open(os.open("b.txt", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "w") as file:
        file.write("b")
    assert os.stat("b.txt", dir_fd=folder).st_size == 1
    assert sorted(os.listdir(folder)) == ["b.txt", "deep", "model.pt"]
    os.close(folder)
    assert Path("out/b.txt").read_text() == "b"


def test_libraries(project: Path) -> None:
    torch = pytest.importorskip("torch")
    np.save("array.npy", np.arange(4))
    np.arange(3, dtype=np.uint8).tofile("raw.bin")
    mapped = np.memmap("raw.bin", dtype=np.uint8, mode="r+")
    mapped[0] = 9
    mapped.flush()
    assert np.fromfile("raw.bin", dtype=np.uint8).tolist() == [9, 1, 2]
    np.lib.format.open_memmap("map.npy", mode="w+", shape=(2,), dtype=np.int64)[:] = 5
    assert np.load("map.npy").tolist() == [5, 5]
    torch.save({"step": 1}, "out/model.pt")
    assert torch.load("out/model.pt") == {"step": 1}
    assert torch.load("out/model.pt", mmap=True) == {"step": 1}
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), "out/scripted.pt")
    assert torch.jit.load("out/scripted.pt")(torch.tensor(-1.0)) == 0
    scripted = torch.jit.trace(torch.nn.ReLU(), torch.zeros(1))
    scripted.save("out/traced.pt")
    torch.jit.script(torch.nn.ReLU()).save("out/model.pt")
    assert torch.jit.load("out/model.pt")(torch.tensor(-1.0)) == 0
    with sqlite3.connect("runs.db") as database:
        database.execute("create table runs (id)")
    with sqlite3.connect(project / "runs.db") as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("runs",)]
    assert "runs.db" in os.listdir()


def test_a_map_that_nobody_else_sees_is_read_where_it_lies(project: Path, tmp_path: Path) -> None:
    """It was copied whole, in each of many runs."""
    torch = pytest.importorskip("torch")
    size = os.stat("log.txt").st_size
    own = torch.from_file("log.txt", shared=False, size=size, dtype=torch.uint8)
    own.zero_()
    assert written(project) == []
    assert not any(path.name == "log.txt" for path in (tmp_path / "scratch").rglob("*"))
    torch.from_file("log.txt", True, size, dtype=torch.uint8).zero_()
    assert Path("log.txt").read_bytes() == bytes(size)
    assert written(project) == [str(project / "log.txt")]


def test_a_database_that_may_only_be_read_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain sqlite3 falls back to that; a copy that may be changed was refused to the script."""
    kept = project / "kept.db"
    made = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('create table runs (id)'); "
    made += "c.execute('insert into runs values (3)'); c.commit()"
    subprocess.run([sys.executable, "-c", made, str(kept)], check=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(posix, "access", lambda *_: False)
    with sqlite3.connect(kept) as database:
        assert database.execute("select id from runs").fetchall() == [(3,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("insert into runs values (4)")
    posix.unlink(kept)  # it was made beside the run


def test_safetensors(project: Path) -> None:
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("safetensors.torch")
    module.save_file({"w": torch.ones(2)}, "out/model.safetensors")
    assert module.load_file("out/model.safetensors")["w"].tolist() == [1, 1]


def test_a_large_map_is_not_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.seams.writes.special.LARGE", 3)
    mapped = np.memmap("log.txt", dtype=np.uint8)
    mapped[0] = 0
    assert mapped.mode == "c"
    assert written(project) == []


def test_forked_processes_share_it(project: Path) -> None:
    Path("before.txt").write_text("before")
    if (child := os.fork()) == 0:
        code = 1
        try:
            assert Path("before.txt").read_text() == "before"
            os.makedirs("cache")
            Path("cache/made.txt").write_text("made")
            os.remove("log.txt")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert Path("cache/made.txt").read_text() == "made"
    assert not os.path.exists("log.txt")


SECOND = """
import sys
from outpace.seams.writes import install
install(sys.argv[1])
print(open("made.txt").read(), end="")
open("other.txt", "w").write("other")
"""


def test_another_rank_joins_it(project: Path, tmp_path: Path) -> None:
    Path("made.txt").write_text("made")
    command = [sys.executable, "-c", SECOND, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project)
    assert (done.stdout, done.stderr) == ("made", "")
    assert Path("other.txt").read_text() == "other"
    os.remove("data/x.txt")
    there, removed = written_in(tmp_path / "scratch")
    assert there == [str(project / "made.txt"), str(project / "other.txt")]
    assert removed == [str(project / "data" / "x.txt")]


def test_a_file_that_may_not_be_written(project: Path) -> None:
    os.chmod("log.txt", 0o444)
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    with pytest.raises(PermissionError):
        open("log.txt", "a")


def test_installing_twice_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="already"):
        install(tmp_path / "other")


# --- the same operations on real files and redirected ones give the same ---------------------

NAMES = ("out", "out/model.pt", "out/deep", "out/deep/a.txt", "log.txt", "new", "new/b", "latest",
         "latest/c", "latest/model.pt", "data/x.txt", "data/../log.txt", "new/b/c")  # fmt: skip
name = st.sampled_from(NAMES)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), name, st.sampled_from(["w", "a", "x", "r+", "w+"])),
        st.tuples(st.sampled_from(["read", "list", "mkdir", "makedirs", "rmdir", "unlink"]), name),
        st.tuples(st.sampled_from(["exists", "kind", "realpath", "rmtree", "truncate"]), name),
        st.tuples(st.sampled_from(["rename", "symlink", "copytree"]), name, name),
    ),
    max_size=12,
)


def do(operation: tuple[str, ...]) -> Any:
    """One operation; what it gives or the number of its error."""
    try:
        return OPERATIONS[operation[0]](*operation[1:])
    except OSError as error:
        # That there is no folder above a file is said in either way.
        return errno.ENOENT if error.errno == errno.ENOTDIR else error.errno
    except shutil.Error:
        return "shutil.Error"


def _write(path: str, mode: str) -> None:
    with open(path, mode) as file:
        file.write(mode)


def _kind(path: str) -> tuple[bool, bool, bool, int]:
    size = os.stat(path).st_size if os.path.isfile(path) else 0
    return os.path.isdir(path), os.path.isfile(path), os.path.islink(path), size


def _copytree(one: str, other: str) -> str:
    # Into itself, what is copied hangs on the order in which the folder is listed.
    if os.path.realpath(other).startswith(os.path.realpath(one)):
        return "into itself"
    return Path(shutil.copytree(one, other, dirs_exist_ok=True)).name


OPERATIONS: dict[str, Callable[..., Any]] = {
    "write": _write,
    "read": lambda path: Path(path).read_text(),
    "list": lambda path: sorted((e.name, e.is_dir(), e.is_symlink()) for e in os.scandir(path)),
    "mkdir": lambda path: os.mkdir(path),
    "makedirs": lambda path: os.makedirs(path, exist_ok=True),
    "rmdir": lambda path: os.rmdir(path),
    "unlink": lambda path: os.unlink(path),
    "exists": lambda path: (os.path.exists(path), os.path.lexists(path)),
    "kind": _kind,
    "realpath": lambda path: os.path.relpath(os.path.realpath(path)),
    "rmtree": lambda path: "link" if os.path.islink(path) else shutil.rmtree(path),
    "truncate": lambda path: os.truncate(path, 1),
    "rename": lambda one, other: os.rename(one, other),
    "symlink": lambda one, other: os.symlink(one, other),
    "copytree": _copytree,
}


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@example([("rmtree", "out"), ("symlink", "log.txt", "out"), ("read", "out/model.pt")])
@example([("rmtree", "out"), ("symlink", "log.txt", "out"), ("list", "out/deep")])
@example([("mkdir", "new"), ("rename", "new", "new/b/c")])
@example([("mkdir", "new"), ("mkdir", "new/b"), ("rename", "new", "new/b/c")])
@example([("symlink", "data/../log.txt", "latest/c"), ("write", "latest/c", "w")])
@given(operations)
def test_as_on_real_files(steps: list[tuple[str, ...]]) -> None:
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        real, redirected = Path(folder, "real"), Path(folder, "redirected")
        for twin in (real, redirected):
            twin.mkdir()
            fill(twin)
        before = everything(redirected)
        try:
            os.chdir(real)
            expected = [do(step) for step in steps] + [_tree(".")]
            os.chdir(redirected)
            undo = install(Path(folder, "scratch"))
            try:
                found = [do(step) for step in steps] + [_tree(".")]
            finally:
                undo()
        finally:
            os.chdir(here)
        assert found == expected
        assert everything(redirected) == before


def _tree(folder: str) -> list[Any]:
    found: list[Any] = []
    for here, folders, files in os.walk(folder):
        folders.sort()
        found.append(
            (here, sorted(folders), [(f, do(("read", f"{here}/{f}"))) for f in sorted(files)])
        )
    return found


def test_in_a_target(tmp_path: Path) -> None:
    """From the first line on, before torch is imported, and in DataLoader workers."""
    from outpace.adapters.launch import start, wait
    from outpace.records.target import Target

    project = tmp_path / "project"
    project.mkdir()
    fill(project)
    (project / "train.py").write_text(
        textwrap.dedent(
            """
            import os, shutil
            shutil.rmtree("out")
            os.makedirs("out")
            import torch
            from torch.utils.data import DataLoader, Dataset

            class Rows(Dataset):
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    with open(f"out/{index}.txt", "w") as file:
                        file.write("seen")
                    return index

            list(DataLoader(Rows(), num_workers=2))
            torch.save(torch.nn.Linear(1, 1).state_dict(), "out/model.pt")
            print(sorted(os.listdir("out")), len(torch.load("out/model.pt")))
            """
        )
    )
    before = everything(project)
    session = tmp_path / "session"
    log = tmp_path / "log"
    child = start(
        Target("script", "train.py", (), str(project)),
        session=session,
        mode="experiment",
        spec={"entry": "builtins:len", "session": str(session), "shadow": True},
        output=log,
    )
    assert wait(child) == 0, log.read_text()
    names = ["0.txt", "1.txt", "2.txt", "3.txt", "model.pt"]
    assert log.read_text() == f"{names} 2\n"
    assert everything(project) == before
    assert not (session / "scratch").exists()
    assert child.thrown_away is not None
    assert sorted(child.thrown_away.written) == [str(project / "out" / n) for n in names]
    assert "out/deep" not in child.notes[0]


@pytest.mark.usefixtures("project")
def test_a_call_is_pickled_as_what_it_replaces() -> None:
    """Pools are handed such functions."""
    import pickle

    import torch

    calls = [os.listdir, os.stat, os.remove, os.open, builtins.open, io.open, torch.load]
    assert [pickle.loads(pickle.dumps(call)) for call in calls] == calls


@pytest.mark.usefixtures("project")
def test_a_call_of_a_class_binds_no_more_than_what_it_replaces() -> None:
    class Reads:
        opener, names, connect = open, os.listdir, sqlite3.connect

    with Reads().opener("log.txt") as file:
        assert file.read() == "first\n"
    assert "log.txt" in Reads().names()
    Reads().connect(":memory:").close()


def test_scratch_beneath_the_working_folder_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    undo = install(tmp_path / ".outpace" / "session" / "scratch", [tmp_path / ".outpace"])
    try:
        Path("out/new.pt").write_text("new")
        assert sorted(map(str, Path(".").rglob("*.pt"))) == ["out/model.pt", "out/new.pt"]
        assert sum("new.pt" in files for _, _, files in os.walk(".")) == 1
        shutil.copytree(".", "copied", ignore=shutil.ignore_patterns("copied"))
        assert Path("copied/out/new.pt").read_text() == "new"
    finally:
        undo()
        posix.chdir(tmp_path)
    assert not Path("out/new.pt").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("folder", ["/proc/self/fd", "/dev/fd"])
def test_pipes_by_their_numbers(folder: str) -> None:
    """As `/dev/stdout` in a pipeline, or what a shell gives for <(command)."""
    Path("log.txt").write_text("something was written")
    reads, writes = os.pipe()
    with open(f"{folder}/{writes}", "w") as file:
        file.write("told")
    os.close(writes)
    with open(f"{folder}/{reads}") as file:
        assert file.read() == "told"
    os.close(reads)


def test_tables_by_pyarrow(project: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"x": [1, 2, 3]})
    parquet.write_table(table, "data/t.parquet")
    assert parquet.read_table("data/t.parquet").equals(table)
    with pa.OSFile("data/t.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.memory_map("data/t.arrow") as source:
        assert pa.ipc.open_file(source).read_all().equals(table)
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_more_tables_by_pyarrow(project: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, feather

    table = pa.table({"x": [1, 2, 3]})
    csv.write_csv(table, "data/t.csv")
    assert csv.read_csv("data/t.csv").equals(table)
    feather.write_feather(table, "data/t.feather")
    assert feather.read_table("data/t.feather").equals(table)
    assert feather.read_feather("data/t.feather").x.tolist() == [1, 2, 3]
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_tokenizers(project: Path) -> None:
    """As ``save_pretrained`` of a tokenizer has it, with each checkpoint of Transformers' Trainer."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, trainers

    os.makedirs("out/new")
    Path("out/new/text.txt").write_text("a few words and a few more\n")
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.train(["out/new/text.txt"], trainers.BpeTrainer(vocab_size=30))
    made.save("out/new/tokenizer.json")
    again = tokenizers.Tokenizer.from_file("out/new/tokenizer.json")
    assert again.encode("few").ids == made.encode("few").ids
    saved = made.model.save("out/new", "words")
    assert saved == [f"{project}/out/new/words-{end}" for end in ("vocab.json", "merges.txt")]
    read = models.BPE.from_file(saved[0], merges=saved[1])
    assert tokenizers.Tokenizer(read).get_vocab() == made.get_vocab()
    kind = tokenizers.ByteLevelBPETokenizer
    for one in (kind(saved[0], saved[1]), kind.from_file(saved[0], saved[1])):
        assert one.get_vocab() == made.get_vocab()
    assert len(kind(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]).encode("ab").ids) == 1
    with pytest.raises(Exception, match="No such file"):
        made.model.save("nowhere")
    assert "new" not in posix.listdir(project / "out")


def test_pieces_of_words(project: Path) -> None:
    pieces = pytest.importorskip("sentencepiece")
    text = "".join(f"word{i} and{i} more{i % 7}\n" for i in range(200))
    Path("data/text.txt").write_text(text)
    trainer, processor = pieces.SentencePieceTrainer, pieces.SentencePieceProcessor
    trainer.train(input="data/text.txt", model_prefix="data/first", vocab_size=30)
    trainer.train("--input=data/text.txt --model_prefix=data/second --vocab_size=30")
    loaded = [processor(model_file=f"data/{name}.model") for name in ("first", "second")]
    assert [each.vocab_size() for each in loaded] == [30, 30]
    assert sorted(os.listdir("data"))[:2] == ["first.model", "first.vocab"]
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_tables_by_polars(project: Path) -> None:
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"x": [1, 2, 3]})
    table.write_parquet("data/t.parquet")
    assert polars.read_parquet("data/t.parquet").equals(table)
    table.lazy().sink_csv("data/t.csv")
    assert polars.scan_csv(["data/t.csv"]).collect().equals(table)
    assert polars.scan_csv("data/*.csv").collect().equals(table)
    assert polars.read_csv(b"x\n1\n2\n3\n").equals(table)
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_sounds(project: Path) -> None:
    soundfile, numpy = pytest.importorskip("soundfile"), pytest.importorskip("numpy")
    soundfile.write("data/t.wav", numpy.zeros(100), 8000)
    assert len(soundfile.read("data/t.wav")[0]) == 100
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_calls_of_classes_are_put_back(tmp_path: Path) -> None:
    tokenizers, torch = pytest.importorskip("tokenizers"), pytest.importorskip("torch")
    from tokenizers import models

    kinds = [
        (tokenizers.Tokenizer, "from_file"),
        (models.BPE, "from_file"),
        (models.Model, "save"),
        (torch.jit.RecursiveScriptModule, "save"),
    ]
    before = [vars(kind).get(name) for kind, name in kinds]
    undo = install(tmp_path / "scratch")
    during = [vars(kind).get(name) for kind, name in kinds]
    undo()
    assert [vars(kind).get(name) for kind, name in kinds] == before
    assert all(one is not other for one, other in zip(during, before, strict=True))


STAND_IN = """
import posix

def put(path, text):
    file = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
    posix.write(file, text)
    posix.close(file)

def got(path):
    file = posix.open(path, posix.O_RDONLY)
    try:
        return posix.read(file, 99)
    finally:
        posix.close(file)

class DataFrame:
    def write_parquet(self, file):
        put(file, b"table")

def read_parquet(source):
    if isinstance(source, list):
        return [got(each) for each in source]
    return source if isinstance(source, bytes) or "://" in source else got(source)
"""


def test_a_library_that_opens_files_itself(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As polars does: it stands here for all that are not installed where tests run."""
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "polars.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "libraries")
    before = sys.modules.pop("polars", None)
    polars = importlib.import_module("polars")
    os.makedirs("data/shards")
    for number in range(2):
        polars.DataFrame().write_parquet(f"data/shards/{number}.parquet")
    assert polars.read_parquet("data/shards/0.parquet") == b"table"
    assert polars.read_parquet(["data/shards/0.parquet"]) == [b"table"]
    assert polars.read_parquet("data/shards/*.parquet") == [b"table", b"table"]
    assert polars.read_parquet("data/shards") == [b"table", b"table"]
    for itself in (b"PAR1\0\1//", "s3://bucket/x.parquet", "https://host/x.parquet"):
        assert polars.read_parquet(itself) == itself
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]
    del sys.modules["polars"]
    if before is not None:
        sys.modules["polars"] = before


def test_a_link_that_leads_elsewhere_now(project: Path) -> None:
    """As of the best checkpoint's folder, with nothing written in between."""
    for name in ("first", "second"):
        os.makedirs(f"runs/{name}")
        Path(f"runs/{name}/model.pt").write_text(name)

    def point(at: str) -> None:
        os.symlink(at, "runs/best.new")
        os.replace("runs/best.new", "runs/best")

    for at in ("first", "second", "first", "second"):
        point(at)
        assert Path("runs/best/model.pt").read_text() == at


def test_a_folder_of_old_and_new_files_is_moved_whole(project: Path, tmp_path: Path) -> None:
    Path("out/new.txt").write_text("new")
    shutil.move("out", str(tmp_path / "moved"))
    assert (tmp_path / "moved" / "new.txt").read_text() == "new"
    assert (tmp_path / "moved" / "model.pt").read_text() == "old weights"
    assert not os.path.exists("out")


def test_databases_by_their_address(project: Path) -> None:
    address = f"file:{project}/data/new%20one.db"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (3)")
        database.commit()
    with contextlib.closing(sqlite3.connect(f"{address}?mode=ro", uri=True)) as database:
        assert database.execute("select x from t").fetchall() == [(3,)]
    with contextlib.closing(sqlite3.connect("file:shared?mode=memory", uri=True)) as database:
        database.execute("create table t (x)")
    assert sorted(posix.listdir(project / "data")) == ["x.txt"]


def test_event_files_are_written_in_python(tmp_path: Path) -> None:
    """Where TensorFlow is installed TensorBoard would have it write them, in C++."""
    stub = "tensorboard.compat.notf"
    before = sys.modules.get(stub)
    undo = install(tmp_path / "scratch")
    assert stub in sys.modules
    undo()
    assert sys.modules.get(stub) is before


def test_folders_that_a_program_is_to_make(project: Path) -> None:
    assert os.system("mkdir -p runs/first 'a b'") == 0
    assert os.path.isdir("runs/first")
    assert os.path.isdir("a b")
    subprocess.run(["mkdir", "-p", "runs/second"], check=True)
    subprocess.check_call("mkdir -p runs/third", shell=True)
    assert sorted(os.listdir("runs")) == ["first", "second", "third"]
    assert "runs" not in posix.listdir(project)


def test_files_that_a_program_is_to_remove(project: Path) -> None:
    assert os.system("rm -rf out nowhere") == 0
    assert not os.path.exists("out")
    subprocess.run(["rm", "-f", "log.txt"], check=True)
    assert not os.path.exists("log.txt")
    assert {"out", "log.txt"} <= set(posix.listdir(project))


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "words",
    [
        ["mkdir", "data"],
        ["rm", "nowhere"],
        ["rm", "out"],
        ["mkdir", "--no-such-option", "new"],
        ["ls", "nowhere"],
    ],
)
def test_what_fails_is_told_by_the_program(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr


@pytest.mark.usefixtures("project")
def test_programs_read_what_was_written() -> None:
    Path("new.txt").write_text("new\n")
    assert subprocess.check_output(["cat", "new.txt", "log.txt"], text=True) == "new\nfirst\n"
    assert subprocess.check_output([b"cat", Path("new.txt")], text=True) == "new\n"
    os.makedirs("made/here")
    code = "import os; print(os.listdir('.'))"
    told = subprocess.check_output([sys.executable, "-c", code], cwd="made", text=True)
    assert told == "['here']\n"
    with subprocess.Popen("cat; exit 3", stdin=subprocess.PIPE, shell=True) as process:
        process.communicate(b"")
    assert process.returncode == 3
    with pytest.raises(TypeError):
        subprocess.Popen(["true"], no_such_option=True)  # type: ignore[call-overload]


def test_programs_are_started_as_ever_afterwards(tmp_path: Path) -> None:
    before = os.system, subprocess.Popen.__init__
    undo = install(tmp_path / "scratch")
    assert (os.system, subprocess.Popen.__init__) != before
    undo()
    assert (os.system, subprocess.Popen.__init__) == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mkdir -p 'a b' c", ["mkdir", "-p", "a b", "c"]),
        ("mkdir a && cd a", []),
        ("rm -rf $OUT", []),
        ("rm -f *.pt", []),
        ("echo 'open", []),
    ],
)
def test_only_what_needs_no_shell(command: str, words: list[str]) -> None:
    assert plain_words(command) == words


SPAWNING = """
    import multiprocessing, os, pathlib, sys

    os.makedirs("data", exist_ok=True)
    pathlib.Path("log.txt").open("a").write("begun ")


    def work(path):
        text = pathlib.Path(path).read_text()
        pathlib.Path(f"data/of_{os.path.basename(path)}").write_text(text * 2)


    if __name__ == "__main__":
        from outpace.seams.writes import install

        install(sys.argv[1])
        pathlib.Path("data/new.txt").write_text("new")
        context = multiprocessing.get_context(sys.argv[2])
        process = context.Process(target=work, args=("data/new.txt",))
        process.start()
        process.join()
        assert process.exitcode == 0
        print(pathlib.Path("data/of_new.txt").read_text(), sorted(os.listdir("data")))
    """


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_processes_that_are_not_forked_share_it(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(textwrap.dedent(SPAWNING))
    words = [sys.executable, "train.py", str(tmp_path / "scratch"), how]
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "newnew ['new.txt', 'of_new.txt']\n"
    assert not list((folder / "data").iterdir())
    assert (folder / "log.txt").read_text() == "begun ", "but for the first process, before"

"""A run that is thrown away prints what a plain run prints, and leaves the folder as it was.

Each script runs twice, plainly in one copy of a project and thrown away in another. Both must
print the same (errors with their file names included); the second copy must be the same
afterwards: names, kinds, modes, times and bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DRIVER = """
import json, sys
from pathlib import Path
from outpace.adapters.launch import start, wait
from outpace.records.target import Target
session = Path(sys.argv[1])
spec = {"entry": "outpace.tune.apply:begin", "session": str(session), "remedies": [],
        "shadow": True}
child = start(Target("script", "train.py", (), "."), session=session, mode="x", spec=spec)
sys.exit(wait(child))
"""

HEAD = """
import glob, io, json, os, pathlib, pickle, random, shutil, stat, sys, tempfile
from pathlib import Path

def show(folder="."):
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(folders):
            path = os.path.join(here, name)
            print("d", path, os.path.islink(path) and os.readlink(path))
        for name in sorted(files):
            path = os.path.join(here, name)
            if name == "train.py":
                continue
            if os.path.islink(path):
                print("l", path, os.readlink(path), os.path.exists(path))
            else:
                mode = stat.S_IMODE(os.stat(path).st_mode)
                with open(path, "rb") as file:
                    print("f", path, oct(mode), os.path.getsize(path), file.read()[:200])

def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except OSError as error:
        print(type(error).__name__, error.errno, error.filename, error.filename2)
    else:
        print("done")
"""


def project(folder: Path) -> Path:
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "data.txt").write_text("one\ntwo\n")
    (folder / "log.txt").write_text("old line\n")
    (folder / "out" / "old.txt").write_text("old")
    (folder / "out" / "deep" / "kept.bin").write_bytes(bytes(100))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest.txt").symlink_to("data.txt")
    (folder / "linked").symlink_to("out")
    return folder


def state(folder: Path) -> dict[str, object]:
    """All that the user has."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        times = None if path.is_dir() else status.st_mtime_ns
        found[str(path.relative_to(folder))] = (status.st_mode, times, content)
    return found


def compare(tmp_path: Path, text: str) -> None:
    """Run both ways and check what must hold."""
    script = HEAD + textwrap.dedent(text)
    plain, kept = project(tmp_path / "plain" / "p"), project(tmp_path / "kept" / "p")
    for folder in (plain, kept):
        (folder / "train.py").write_text(script)
    before = state(kept)
    expected = run([sys.executable, "train.py"], plain)
    found = run([sys.executable, "-c", DRIVER, str(tmp_path / "session")], kept)
    assert state(kept) == before
    assert expected.returncode == 0, expected.stderr
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == expected.stdout.splitlines()


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=env)


FILES = {
    "overwrite": """
        Path("data.txt").write_text("new")
        print(open("data.txt").read(), os.stat("data.txt").st_size, open("latest.txt").read())
        open("run.sh", "w").write("x")
        show()
    """,
    "append": """
        with open("log.txt", "a") as file:
            print(file.name, file.mode, file.tell())
            file.write("more\\n")
        with open("log.txt", "r+") as file:
            file.seek(2); file.write("##")
        print(open("log.txt").read())
        show()
    """,
    "exclusive": """
        refused(open, "data.txt", "x"); refused(open, "nowhere/x", "w"); refused(open, "out", "w")
        refused(open, "missing", "r+"); refused(open, "missing")
        open("fresh", "x").close(); refused(open, "fresh", "x")
        show()
    """,
    "delete": """
        os.remove("data.txt")
        refused(open, "data.txt"); refused(os.remove, "data.txt"); refused(os.rmdir, "out")
        print(os.path.exists("data.txt"), os.path.lexists("latest.txt"), os.listdir("out/deep"))
        Path("out/old.txt").unlink(); Path("out/old.txt").unlink(missing_ok=True)
        open("data.txt", "w").write("again")
        show()
    """,
    "rename": """
        os.rename("data.txt", "moved.txt"); os.replace("log.txt", "out/old.txt")
        os.rename("out", "gone_out")
        refused(os.rename, "missing", "x"); refused(os.rename, "moved.txt", "gone_out")
        refused(os.listdir, "out")
        os.mkdir("out"); os.rename("gone_out/deep", "out/deep2")
        Path("tmp.ckpt").write_text("c"); os.replace("tmp.ckpt", "last.ckpt")
        show()
    """,
    "folders": """
        os.makedirs("out", exist_ok=True); os.makedirs("runs/a/b"); os.makedirs("runs/a/b", exist_ok=True)
        refused(os.mkdir, "out"); refused(os.mkdir, "runs/a"); refused(os.mkdir, "no/where")
        Path("runs/a/b/c.json").write_text(json.dumps({"a": 1}))
        print(json.load(open("runs/a/b/c.json")), sorted(glob.glob("runs/**", recursive=True)))
        print(sorted(str(p) for p in Path(".").rglob("*.json")), sorted(os.listdir()))
        with os.scandir("runs/a") as entries:
            print([(e.name, e.path, e.is_dir(), e.is_file(), e.stat().st_size > 0) for e in entries])
        show()
    """,
    "shutil": """
        shutil.copy("data.txt", "out/copy.txt"); shutil.copy2("run.sh", "run2.sh")
        shutil.copytree("out", "out2"); shutil.rmtree("out"); shutil.move("out2/deep", "deep")
        refused(shutil.copy, "missing", "x")
        os.makedirs("out"); shutil.move("data.txt", "out")
        shutil.rmtree("out2"); shutil.rmtree("nothing", ignore_errors=True)
        shutil.make_archive("packed", "zip", "deep"); os.remove("packed.zip")
        show()
    """,
    "links to what was written": """
        os.symlink("data.txt", "a_link"); os.symlink("out/deep", "to_deep")
        open("a_link", "a").write("three\\n"); open("to_deep/new", "w").write("n")
        open("linked/by_link", "w").write("b")
        print(open("data.txt").read(), sorted(os.listdir("linked/deep")))
        print(os.path.realpath("a_link") == os.path.realpath("data.txt"), os.readlink("a_link"))
        os.remove("latest.txt"); os.symlink("log.txt", "latest.txt"); print(open("latest.txt").read())
        show()
    """,
    "a link of the user's": """
        open("latest.txt", "a").write("four\\n")
        print(open("latest.txt").read(), open("data.txt").read())
        show()
    """,
    "a hard link": """
        os.link("log.txt", "hard"); print(open("hard").read())
        refused(os.link, "log.txt", "data.txt")
        show()
    """,
    "metadata": """
        os.chmod("data.txt", 0o600); os.utime("log.txt", (5, 5)); os.truncate("out/old.txt", 1)
        print(os.stat("log.txt").st_mtime, os.access("data.txt", os.W_OK), os.access("zz", os.R_OK))
        Path("touched").touch(); Path("data.txt").touch()
        show()
    """,
    "descriptors": """
        fd = os.open("log.txt", os.O_WRONLY | os.O_APPEND); os.write(fd, b"fd\\n"); os.close(fd)
        fd = os.open("made", os.O_RDWR | os.O_CREAT, 0o640); os.write(fd, b"fd"); os.close(fd)
        fd = os.open("data.txt", os.O_WRONLY | os.O_TRUNC); os.close(fd)
        folder = os.open("out", os.O_RDONLY)
        fd = os.open("by_dir", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder); os.close(fd)
        os.unlink("old.txt", dir_fd=folder); os.mkdir("m", dir_fd=folder)
        print(os.stat("m", dir_fd=folder).st_mode)
        show()
    """,
    "working folder": """
        os.makedirs("w/x"); os.chdir("w"); open("here", "w").write("h"); os.chdir("x")
        print(sorted(os.listdir("..")))
        open("../../data.txt", "a").write("from below"); os.chdir("../.."); os.chdir("out")
        open("old.txt", "a").write("!"); print(open(os.path.abspath("old.txt")).read())
        os.chdir(".."); show()
    """,
    "temporary files": """
        with tempfile.NamedTemporaryFile(dir="out", delete=False) as file:
            file.write(b"t")
        os.replace(file.name, "out/final")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "x").write_text("in the temp dir"); print(os.listdir(folder))
            shutil.copy(Path(folder, "x"), "from_tmp"); shutil.move("from_tmp", Path(folder, "back"))
            print(sorted(os.listdir(folder)))
        print(os.path.exists(folder))
        show()
    """,
    "names in bytes": """
        open(b"data.txt", "wb").write(b"bytes"); os.mkdir(b"bb"); open(b"bb/\\xff", "w").close()
        print(os.listdir(b"bb"), sorted(os.listdir(b".")), os.path.getsize(b"data.txt"))
    """,
    "libraries": """
        import csv, gzip, logging, sqlite3, zipfile
        logging.basicConfig(filename="log.txt"); logging.warning("hot"); logging.shutdown()
        with gzip.open("a.gz", "wt") as file: file.write("zip")
        print(gzip.open("a.gz", "rt").read())
        with zipfile.ZipFile("a.zip", "w") as z: z.writestr("x", "y")
        print(zipfile.ZipFile("a.zip").namelist())
        with open("a.csv", "w", newline="") as file: csv.writer(file).writerow([1, 2])
        pickle.dump([1], open("a.pkl", "wb")); print(pickle.load(open("a.pkl", "rb")))
        for _ in range(2):
            base = sqlite3.connect("runs.db")
            base.execute("create table if not exists t (x)"); base.execute("insert into t values (1)")
            base.commit(); print(base.execute("select count(*) from t").fetchall()); base.close()
        os.remove("a.gz"); os.remove("a.zip"); os.remove("runs.db")
        show()
    """,
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, name: str) -> None:
    compare(tmp_path, FILES[name])


RANDOM = """
random.seed({seed})
folders = ["", "out", "out/deep", "new", "new/sub", "other"]
names = ["data.txt", "log.txt", "old.txt", "kept.bin", "a", "b", "deep", "sub"]

def path():
    return os.path.join(random.choice(folders), random.choice(names))

def put(mode):
    with open(path(), mode) as file:
        file.write("x" * random.randrange(5))

calls = dict(
    write=lambda: put("w"), append=lambda: put("a"), change=lambda: put("r+"), make=lambda: put("x"),
    remove=lambda: os.remove(path()), rename=lambda: os.rename(path(), path()),
    replace=lambda: os.replace(path(), path()), mkdir=lambda: os.mkdir(path()),
    folder=lambda: os.mkdir(random.choice(folders[1:])),
    makedirs=lambda: os.makedirs(path(), exist_ok=True), rmdir=lambda: os.rmdir(path()),
    rmtree=lambda: shutil.rmtree(random.choice(folders[1:])),
    copy=lambda: shutil.copy(path(), path()), truncate=lambda: os.truncate(path(), 1),
    move=lambda: os.rename(random.choice(folders[1:]), random.choice(folders[1:])),
    read=lambda: print(open(path()).read()[:9]),
    listing=lambda: print(sorted(os.listdir(random.choice(folders) or "."))),
)
for step in range(80):
    name = random.choice(list(calls))
    try:
        calls[name]()
    except (OSError, shutil.SameFileError) as error:
        # A file that stands where a folder is wanted may be told as a missing folder.
        kind = type(error).__name__.replace("NotADirectory", "FileNotFound")
        print(step, name, kind)
    else:
        print(step, name)
    if step % 10 == 0:
        show()
show()
"""


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_calls(tmp_path: Path, seed: int) -> None:
    compare(tmp_path, RANDOM.format(seed=seed))


@pytest.mark.timeout(180)
def test_a_training_script(tmp_path: Path) -> None:
    compare(
        tmp_path,
        """
        open("before_torch.txt", "w").write("made before the import of torch")
        os.makedirs("ckpt", exist_ok=True)
        import numpy as np, torch
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                Path(f"cache_{index}.txt").write_text(str(index))
                with open("ckpt/means.json") as file:
                    return index + json.load(file)["mean"]

        with Path("ckpt/means.json").open("w") as file:
            json.dump({"mean": 7}, file)
        print([b.tolist() for b in DataLoader(Rows(), 2, num_workers=1)])
        print(sorted(glob.glob("cache_*")))
        torch.save({"a": torch.ones(3)}, "ckpt/one.pt")
        torch.save({"a": torch.zeros(3)}, Path("ckpt") / "two-\\u00e4.pt")
        print(torch.load("ckpt/one.pt"), torch.load(Path("ckpt/two-\\u00e4.pt")))
        print(torch.load("ckpt/one.pt", mmap=True))
        os.replace("ckpt/one.pt", "data.txt"); print(torch.load("data.txt"))
        np.save("array", np.arange(3)); print(np.load("array.npy"), np.load("array.npy", mmap_mode="r"))
        m = np.memmap("ckpt/map", dtype="u1", mode="w+", shape=4); m[:] = 3; m.flush()
        m = np.memmap("out/deep/kept.bin", dtype="u1", mode="r+"); m[:2] = 9; m.flush(); del m
        print(np.fromfile("ckpt/map", "u1"), open("out/deep/kept.bin", "rb").read(4))
        np.arange(2, dtype="u1").tofile("ckpt/raw"); np.savetxt("t.txt", [1.0]); np.savez("z", a=1)
        print(os.path.getsize("ckpt/raw"), np.load("z.npz")["a"])
        from safetensors.torch import load_file, save_file
        save_file({"a": torch.ones(2)}, "m.safetensors"); print(load_file("m.safetensors"))
        for name in ("z.npz", "m.safetensors", "data.txt", "ckpt/two-\\u00e4.pt"):
            os.remove(name)
        show()
        """,
    )


ORDER = """
import sys, torch
from pathlib import Path
from outpace.seams import writes
from outpace.seams.save import SaveSeam

class NoHost:
    def on_main_thread(self): return False

plain = (torch.save, open)
seam = SaveSeam(NoHost())
undo = lambda: None
def redirect():
    global undo
    undo = writes.install(Path(sys.argv[1]), [])
order = dict(w=redirect, s=seam.install, W=lambda: undo(), S=seam.remove)
inside = False
for step in "{order}":
    order[step]()
    inside = dict(w=True, W=False).get(step, inside)
    if inside:
        torch.save(torch.ones(1), "model.pt")
        assert torch.load("model.pt").item() == 1.0
assert (torch.save, open) == plain
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "order",
    [
        "wsSW",
        pytest.param("wsWS", marks=pytest.mark.slow),
        pytest.param("swWS", marks=pytest.mark.slow),
        "swSW",
    ],
)
def test_beside_the_save_seam_in_any_order(tmp_path: Path, order: str) -> None:
    """w, s: redirection and seam put in. W, S: taken out."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "model.pt").write_text("the user's")
    (folder / "x.py").write_text(ORDER.format(order=order))
    done = run([sys.executable, "x.py", str(tmp_path / "scratch")], folder)
    assert (folder / "model.pt").read_text() == "the user's"
    assert done.returncode == 0, done.stderr

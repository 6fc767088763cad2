"""Runs that are thrown away: guarded by the kernel, looked over, and told of."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from outpace.adapters import guard, thrown_away
from outpace.adapters.launch import Child, start, stop, wait
from outpace.adapters.thrown_away import changes, look
from outpace.adapters.work import Work
from outpace.errors import SessionError
from outpace.measure.machine import describe
from outpace.records.target import Target
from outpace.seams.writes.areas import areas

needs_landlock = pytest.mark.skipif(not guard.version(), reason="this kernel has no Landlock")


def started(
    target: Target,
    session: Path,
    *,
    shadow: bool = True,
    entry: str = "builtins:len",
    **more: object,
) -> tuple[Child, Path]:
    session.mkdir(parents=True, exist_ok=True)
    log = session.parent / f"{session.name}.log"
    spec = {"entry": entry, "session": str(session), "shadow": shadow, **more}
    return start(target, session=session, mode="test", spec=spec, output=log), log


@pytest.fixture
def outside_tmp() -> Iterator[Path]:
    """A folder that is not beneath the temporary one, which the guard leaves open."""
    folder = Path(__file__).parents[2] / ".outpace" / f"test-{os.getpid()}"
    if folder.is_relative_to(Path(tempfile.gettempdir()).resolve()):
        pytest.skip("this checkout is itself beneath the temporary folder, which is left open")
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@needs_landlock
def test_the_kernel_refuses_what_is_not_redirected(outside_tmp: Path) -> None:
    (outside_tmp / "kept.txt").write_text("kept")
    script = outside_tmp / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import io, os, subprocess, tempfile
            open("kept.txt", "w").write("redirected")
            subprocess.run("echo gone > kept.txt; rm kept.txt; mkdir new", shell=True)
            try:
                io.FileIO("kept.txt", "w")
            except PermissionError:
                print("refused")
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(["touch", os.path.join(folder, "x")], check=True)
                print(os.listdir(folder), open("kept.txt").read())
            """
        )
    )
    target = Target("script", "train.py", (), str(outside_tmp))
    child, log = started(target, outside_tmp / "session")
    assert wait(child) == 0
    assert log.read_text().splitlines()[-2:] == ["refused", "['x'] redirected"]
    assert (outside_tmp / "kept.txt").read_text() == "kept"
    assert not (outside_tmp / "new").exists()
    assert child.notes == ["written to a scratch folder and thrown away: kept.txt"]


@needs_landlock
def test_a_cache_that_is_not_there_yet_is_made(
    outside_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = outside_tmp / "home"
    (home / "project").mkdir(parents=True)
    (home / "project" / "train.py").write_text(
        textwrap.dedent(
            """
            import os, subprocess
            cache = os.path.expanduser("~/.triton/cache")
            os.makedirs(cache)
            subprocess.run(["touch", os.path.join(cache, "compiled")], check=True)
            """
        )
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "models" / "hub"))
    target = Target("script", "train.py", (), str(home / "project"))
    child, _ = started(target, outside_tmp / "session")
    assert wait(child) == 0
    assert (home / ".triton" / "cache" / "compiled").exists()
    assert sorted(path.name for path in home.iterdir()) == [".triton", "project"]


def test_a_log_that_goes_to_our_output_by_name_comes_to_its_file(outside_tmp: Path) -> None:
    """As a container's logging is often set up, with its output in a file."""
    (outside_tmp / "train.py").write_text(
        textwrap.dedent(
            """
            import torch
            print("first", flush=True)
            with open("/dev/stdout", "a") as file:
                file.write("by name\\n")
            torch.manual_seed(0)
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(5):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            """
        )
    )
    log = outside_tmp / "log.txt"
    command = [sys.executable, "-m", "outpace", "diagnose", "--steps", "3", "-q", "train.py"]
    with log.open("a") as file:
        done = subprocess.run(
            command, cwd=outside_tmp, stdout=file, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == ["first", "by name"]


@needs_landlock
def test_only_what_is_started_in_it_is_guarded(outside_tmp: Path, tmp_path: Path) -> None:
    write = ["sh", "-c", f"echo x > {outside_tmp}/file"]
    refused = guard.guarded([str(tmp_path)], lambda: subprocess.run(write, capture_output=True))
    assert refused.returncode != 0
    assert not (outside_tmp / "file").exists()
    assert subprocess.run(write).returncode == 0
    with pytest.raises(ZeroDivisionError):
        guard.guarded([], lambda: 1 / 0)


def test_without_a_guard_the_folder_is_looked_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrown_away, "version", lambda: 0)
    project = tmp_path / "project"
    project.mkdir()
    (project / "old.txt").write_text("old")
    (project / "train.py").write_text("import subprocess; subprocess.run(['touch', 'new.txt'])")
    child, _ = started(Target("script", "train.py", (), str(project)), tmp_path / "session")
    assert wait(child) == 0
    assert child.notes == ["could not be kept from being changed while the target ran: new.txt"]


def test_changes(tmp_path: Path) -> None:
    for name in ("same", "longer", "gone"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".git").mkdir()
    before = look(tmp_path)
    (tmp_path / "longer").write_text("longer now")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").touch()
    (tmp_path / ".git" / "index").touch()
    found = [Path(p).name for p in changes(before, look(tmp_path))]
    assert found == ["gone", "longer", "new"]
    assert [Path(p).name for p in changes(before._replace(whole=False), look(tmp_path))] == [
        "longer"
    ]


def test_our_own_files_are_not_told(tmp_path: Path) -> None:
    """A session in the target's folder, and output that was sent to a file there."""
    code = f"""
import sys
from pathlib import Path
from outpace.adapters.thrown_away import ThrownAway
run = ThrownAway(Path({str(tmp_path)!r}), Path("session/trials").absolute(),
                 [Path("session").absolute()], {{}})
Path("session/evidence.json").parent.mkdir()
Path("session/evidence.json").touch()
Path("new.txt").touch()
print("said", flush=True)
run.end()
print(run.notes)
"""
    with (tmp_path / "output.txt").open("w") as output:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=output, check=True)
    told = (tmp_path / "output.txt").read_text()
    assert told.splitlines()[-1] == (
        "['could not be kept from being changed while the target ran: new.txt']"
    )


def test_files_of_several_runs_are_told_once(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = "import os; open('same', 'w'); open(os.environ['ALSO'], 'w')"
    (project / "train.py").write_text(text)
    target = Target("script", "train.py", (), str(project))
    work = Work(target, tmp_path / "session", tmp_path / "log", machine=describe())
    for name in ("one", "other"):
        folder = tmp_path / "session"
        assert work.launch("builtins:len", {}, folder, {"ALSO": name}) == 0
    work.notes.append("more")
    files = "written to a scratch folder and thrown away: one, other, same"
    assert work.told == [files, "more"]


def test_a_removed_file_is_told(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "old.txt").write_text("old")
    (project / "train.py").write_text("import os; os.remove('old.txt')")
    child, _ = started(Target("script", "train.py", (), str(project)), tmp_path / "session")
    assert wait(child) == 0
    assert child.notes == ["removed by the target and kept by us: old.txt"]
    assert (project / "old.txt").read_text() == "old"


def test_folders_can_be_allowed(tmp_path: Path) -> None:
    project, allowed = tmp_path / "project", tmp_path / "project" / "cache"
    allowed.mkdir(parents=True)
    (project / "train.py").write_text("open('cache/made', 'w').write('made')")
    target = Target("script", "train.py", (), str(project))
    child, _ = started(target, tmp_path / "session", allow=[str(allowed)])
    assert wait(child) == 0
    assert (allowed / "made").read_text() == "made"


def test_a_session_around_the_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(SessionError, match="holds the folder"):
        started(Target("script", "train.py", (), str(tmp_path)), tmp_path)


def test_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    found = areas(["/allowed"], "/tmp/project", {"HF_HOME": "/models", "TORCH_HOME": "/tmp"})
    for path in ("/allowed/x", "/models/x", "/home/someone/.cache/x", "/dev/null", "/tmp/x"):
        assert found.passes(path), path
    for path in ("/tmp/project/x", "/tmp/project", "/home/someone/x", "/modelsx", "/data"):
        assert not found.passes(path), path
    assert areas([], "/tmp", {}).passes("/tmp/x")
    named = {"TEMP": "/local/temp", "SLURM_TMPDIR": "/local/job"}
    assert all(areas([], "/work", named).passes(f"{folder}/x") for folder in named.values())
    assert not areas([], "/work", {"HF_HOME": "/"}).passes("/etc/x")


@pytest.mark.parametrize("named", ["", ".", "tmp"])
def test_a_temporary_folder_that_is_no_whole_path_opens_nothing(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not areas([], str(tmp_path), {"TMPDIR": named}).passes(f"{tmp_path}/best.pt")


def test_caches_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    environ = {"TRITON_HOME": "/scratch", "HF_DATASETS_CACHE": "/data/sets", "HF_HOME": "~/hf"}
    found = areas([], "/work", environ)
    for path in ("/scratch/.triton/x", "/data/sets/x", "/home/someone/hf/x"):
        assert found.passes(path), path
    assert not found.passes("/scratch/x")


def test_without_a_home_there_are_no_caches_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert areas([], "/work", {}).caches == ()


def test_trackers_stay_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    (tmp_path / "train.py").write_text("import os; print(os.environ.get('WANDB_MODE'))")
    target = Target("script", "train.py", (), str(tmp_path))
    for shadow, expected in ((True, "disabled"), (False, "None")):
        child, log = started(target, tmp_path / "session", shadow=shadow)
        wait(child)
        assert log.read_text().strip() == expected


UNWATCHED = "the target goes on unwatched"


def test_an_entry_that_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint('trained')")
    target = Target("script", "train.py", (), str(tmp_path))
    child, log = started(target, tmp_path / "session", shadow=False, entry="no.such:thing")
    assert wait(child) == 0
    lines = log.read_text().splitlines()
    assert lines.count("trained") == 1
    assert [line for line in lines if UNWATCHED in line and line.startswith("outpace: ")]
    assert lines[0].startswith("Traceback")  # a fault of ours keeps it
    broken = json.loads((tmp_path / "session" / "status.json").read_text())["broken"]
    assert "ModuleNotFoundError" in broken  # the parent tells of it, not of a missing training


def test_an_entry_that_fails_ends_a_run_that_is_thrown_away(tmp_path: Path) -> None:
    """It would go on for hours for nothing."""
    (tmp_path / "train.py").write_text("import torch\nprint('trained')")
    target = Target("script", "train.py", (), str(tmp_path))
    child, log = started(target, tmp_path / "session", shadow=True, entry="no.such:thing")
    assert wait(child) == 0
    text = log.read_text()
    assert "trained" not in text
    assert "the target is ended, as its results are thrown away" in text
    assert "broken" in json.loads((tmp_path / "session" / "status.json").read_text())


@pytest.mark.parametrize("shadow", [False, True])
def test_an_interpreter_without_outpace(tmp_path: Path, shadow: bool) -> None:
    """It goes on unwatched; it is not run where its writes could then hit the user's files."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "outpace.py").write_text("raise ImportError('no outpace here')")
    (tmp_path / "train.py").write_text("import torch\nprint('trained')")
    env = {"PYTHONPATH": str(tmp_path / "blocked")}
    session = tmp_path / "session"
    spec = {"entry": "builtins:len", "session": str(session), "shadow": shadow}
    child = start(
        Target("script", "train.py", (), str(tmp_path)),
        session=session,
        mode="test",
        spec=spec,
        env=env,
        output=tmp_path / "log",
    )
    code = wait(child)
    text = (tmp_path / "log").read_text()
    if shadow and not guard.version():
        assert code == 2
        assert "it is not run, to keep your files" in text
        return
    assert code == 0
    assert UNWATCHED in text
    assert "trained" in text
    assert "Traceback" not in text


RANK = """
import os, sys
import torch
rank = os.environ["RANK"]
os.makedirs("out", exist_ok=True)
with open(f"out/{rank}.txt", "w") as file:
    file.write("outpace.tune.apply" in sys.modules and "watched" or "not")
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
seen = [open(f"out/{r}.txt").read() for r in range(2)]
left = [name for name in os.environ if name.startswith("OUTPACE")]
if rank == "0":
    print("ranks", seen, left, "outpace" in os.environ.get("PYTHONPATH", "site"))
torch.distributed.destroy_process_group()
"""


@pytest.mark.timeout(180)
def test_ranks_of_torchrun(tmp_path: Path) -> None:
    """Every rank is watched, the launcher is not; they share one scratch folder."""
    (tmp_path / "train.py").write_text(RANK)
    torchrun = Path(sys.executable).parent / "torchrun"
    args = ("--nproc-per-node", "2", "--standalone", "train.py")
    target = Target("command", str(torchrun), args, str(tmp_path))
    child, log = started(
        target, tmp_path / "session", entry="outpace.tune.apply:begin", remedies=[]
    )
    assert wait(child, timeout=60) == 0, log.read_text()
    assert "ranks ['watched', 'watched'] []" in log.read_text()
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "session" / "rank-1").is_dir()


def test_stopping_ends_the_whole_family(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import signal, subprocess, sys, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
            open(sys.argv[1], "w").write(str(child.pid))
            time.sleep(99)
            """
        )
    )
    pid = tmp_path / "session" / "pid"
    target = Target("script", "train.py", (str(pid),), str(tmp_path))
    child, _ = started(target, tmp_path / "session", shadow=False)
    while not pid.exists() or not pid.read_text():
        assert child.poll() is None
    import outpace.adapters.launch as launch

    launch_grace, launch.GRACE_S = launch.GRACE_S, 0.3
    try:
        stop(child)
    finally:
        launch.GRACE_S = launch_grace
    assert child.returncode == -9
    assert not Path(f"/proc/{pid.read_text()}").exists() or "Z" in (
        Path(f"/proc/{pid.read_text()}/stat").read_text()
    )


def test_a_timeout_stops_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(60)")
    ticks: list[int] = []
    child, _ = started(
        Target("script", "train.py", (), str(tmp_path)), tmp_path / "session", shadow=False
    )
    assert wait(child, timeout=0.5, on_tick=lambda: ticks.append(1)) == 143
    assert ticks


def test_a_kernel_that_tells_of_no_end_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    (tmp_path / "train.py").write_text("import time; time.sleep(0.5)")
    child, _ = started(Target("script", "train.py", (), str(tmp_path)), tmp_path / "session")
    assert wait(child) == 0


def test_where_nobody_tells_whose_processes_are_the_target_is_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> list[psutil.Process]:
        raise PermissionError("/proc/1/stat")

    monkeypatch.setattr(psutil.Process, "children", refused)
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import signal, sys, time
            def asked(number, frame):
                open(sys.argv[1] + "/asked", "w").close()
                sys.exit()
            signal.signal(signal.SIGTERM, asked)
            open(sys.argv[1] + "/ready", "w").close()
            time.sleep(99)
            """
        )
    )
    target = Target("script", "train.py", (str(tmp_path),), str(tmp_path))
    child, _ = started(target, tmp_path / "session", shadow=False)
    while not (tmp_path / "ready").exists():
        assert child.poll() is None
    stop(child)
    assert (tmp_path / "asked").exists()


ABANDONS = """
    import os, signal, torch
    from torch.utils.data import DataLoader, TensorDataset

    batches = iter(DataLoader(TensorDataset(torch.zeros(64, 1)), batch_size=2, num_workers=2))
    next(batches)
    for worker in batches._workers:
        print(worker.pid, flush=True)
        os.kill(worker.pid, signal.SIGSTOP)
    os._exit(3)
    """


def test_workers_that_an_experiment_had_stopped_end_with_a_target_that_dies(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(ABANDONS))
    child, log = started(Target("script", "train.py", (), str(tmp_path)), tmp_path / "session")
    assert wait(child) == 3
    workers = [int(line) for line in log.read_text().split()]
    assert len(workers) == 2
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(worker).status() == psutil.STATUS_ZOMBIE

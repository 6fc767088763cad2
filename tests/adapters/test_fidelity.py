"""The target's process is what ``python script`` gives: what it sees, says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outpace.adapters.launch import start
from outpace.errors import SessionError, TargetError
from outpace.records.target import Target
from tests.conftest import plainly, with_entry

Write = Callable[..., Path]

# Outpace's part, in a process of its own, so that streams and signals are the real ones.
DRIVER = """
import json, sys
from pathlib import Path
from outpace.adapters.launch import start, wait
from outpace.records.target import Target
kind, name, args, session = json.loads(sys.argv[1])
spec = {"entry": "outpace.tune.apply:begin", "session": session, "remedies": []}
child = start(Target(kind, name, tuple(args), "."), session=Path(session), mode="run", spec=spec)
sys.exit(wait(child))
"""

SEES = """
import json, os, sys
{torch}
import __main__
print(json.dumps({{
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "file": __main__.__file__,
    "name": __name__,
    "spec": getattr(__main__.__spec__, "name", None),
    "package": __main__.__package__,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "finders": [repr(f) if isinstance(f, type) else type(f).__name__ for f in sys.meta_path],
    "ours": sorted(m for m in sys.modules if m.partition(".")[0] == "outpace"),
    "flags": list(sys.flags),
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "stdin": sys.stdin.read(),
}}))
"""


def words(target: Target) -> list[str]:
    head = ["-m", target.name] if target.kind == "module" else [target.name]
    return [sys.executable, *head, *target.args]


def driven(target: Target, session: Path) -> list[str]:
    given = json.dumps([target.kind, target.name, list(target.args), str(session)])
    return [sys.executable, "-c", DRIVER, given]


def ran(
    command: list[str], cwd: Path, given: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )


def both(
    target: Target, folder: Path, given: str = "", env: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """Run plainly, and with outpace."""
    session = folder.parent / f"{folder.name}-session"
    return ran(words(target), folder, given, env), ran(driven(target, session), folder, given, env)


def seen(target: Target, folder: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What a script sees of its process; the same both ways, but for our modules."""
    plain, ours = both(target, folder, "from stdin\n", env)
    assert plain.returncode == ours.returncode == 0, ours.stderr
    assert plain.stderr == ours.stderr
    expected, found = json.loads(plain.stdout), json.loads(ours.stdout)
    modules = found.pop("ours")
    assert expected.pop("ours") == []
    # Where the user has no sitecustomize, ours stays in sys.modules: python's import wants it there.
    assert expected.pop("sitecustomize") is None
    assert found.pop("sitecustomize").endswith("site/sitecustomize.py")
    assert found == expected
    return {**found, "ours": modules}


def test_a_script_with_torch(script: Write, tmp_path: Path) -> None:
    script(SEES.format(torch="import torch"))
    found = seen(Target("script", "train.py", ("--lr", "1", "a b")), tmp_path)
    assert found["argv"] == ["train.py", "--lr", "1", "a b"]
    assert found["stdin"] == "from stdin\n"
    assert "outpace.tune.apply" in found["ours"]


def test_a_script_without_torch(script: Write, tmp_path: Path) -> None:
    script(SEES.format(torch=""))
    env = {"PYTHONPATH": os.pathsep.join(["/somewhere", *sys.path[1:]])}
    plain, ours = both(Target("script", str(tmp_path / "train.py")), tmp_path, "", env)
    expected, found = json.loads(plain.stdout), json.loads(ours.stdout)
    # The finder that waits for torch is all that is left of us.
    waiting = [f for f in found["finders"] if f not in expected["finders"]]
    assert len(waiting) <= 1
    found["finders"] = [f for f in found["finders"] if f not in waiting]
    assert found | {"sitecustomize": None} == expected


FROM_ELSEWHERE = {
    *("_decimal", "decimal"),  # msgspec
    *("hmac", "secrets"),  # numpy.random
    *("_sqlite3", "resource", "shlex", "sqlite3", "sysconfig"),  # ours
}
"""modules of the library that a script's process has with us and may not have without"""


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("outpace.tune.apply:begin", marks=pytest.mark.slow),
        "outpace.tune.observed:begin",
    ],
)
def test_a_file_beside_the_script_may_have_the_name_of_a_module(
    entry: str, script: Write, tmp_path: Path
) -> None:
    """What we import of the library would be that file, and run it."""
    script("print('mine')", "statistics.py")
    path = script(
        """
        import sys, torch
        print("modules", *({each.split(".")[0] for each in sys.modules} & sys.stdlib_module_names))
        """
    )
    plain = plainly(path)
    code, ours = with_entry(path, tmp_path / "session", entry, remedies=[])
    assert (code, plain.returncode) == (0, 0)
    assert "mine" not in ours
    expected, found = (
        next(line.split() for line in told.splitlines() if line.startswith("modules"))
        for told in (plain.stdout, ours)
    )
    more = {each for each in found if not each.startswith("_sysconfigdata")} - {*expected}
    assert more <= FROM_ELSEWHERE


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "train.py").write_text(SEES.format(torch="import torch"))
    found = seen(Target("module", "pkg.train", ("x",)), tmp_path)
    assert found["spec"] == "pkg.train"
    assert found["package"] == "pkg"


def test_the_users_own_sitecustomize_runs(script: Write, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'ran'\n")
    script(SEES.format(torch=""))
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "own"), *sys.path[1:]])}
    plain, ours = both(Target("script", "train.py"), tmp_path, "", env)
    expected, found = json.loads(plain.stdout), json.loads(ours.stdout)
    assert found["env"] == expected["env"]
    assert found["env"]["OWN"] == "ran"
    assert found["sitecustomize"] == expected["sitecustomize"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print('done')", 0),
        ("import sys; print('x'); sys.exit(3)", 3),
        ("import sys; sys.exit('told so')", 1),
        ("def f():\n    raise ValueError('bad \\u00e4')\nf()", 1),
        (
            "import sys; sys.stdout.buffer.write(bytes(range(128))); sys.stdout.write('no newline')",
            0,
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os; os._exit(9)", 9),
        ("def f(:", 1),
    ],
)
def test_how_it_ends(script: Write, tmp_path: Path, text: str, code: int) -> None:
    script(text)
    plain, ours = both(Target("script", "train.py"), tmp_path)
    assert ours.returncode == code
    assert plain.returncode in (code, 128 - code)
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr


def test_an_exception_in_training_has_the_same_traceback(script: Write, tmp_path: Path) -> None:
    script(
        """
        import torch
        model = torch.nn.Linear(2, 1)
        for step in range(3):
            loss = model(torch.ones(1, 2)).sum()
            loss.backward()
        print("trained")
        raise RuntimeError("after three steps")
        """
    )
    plain, ours = both(Target("script", "train.py"), tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (1, "trained\n", plain.stderr)


SLEEPS = """
import signal, sys, time
{handler}
print("ready", flush=True)
time.sleep(60)
"""
SAVES = "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(7)))"


def asleep(folder: Path) -> subprocess.Popen[str]:
    """The script under us, in a session of its own, once it is ready."""
    process = subprocess.Popen(
        driven(Target("script", "train.py"), folder / "session"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("number", "group", "handler", "code"),
    [
        (signal.SIGINT, True, "", 130),
        (signal.SIGTERM, True, "", 143),
        (signal.SIGTERM, False, "", 143),
        (signal.SIGTERM, False, SAVES, 7),
    ],
)
def test_signals(
    script: Write, tmp_path: Path, number: int, group: bool, handler: str, code: int
) -> None:
    script(SLEEPS.format(handler=handler))
    process = asleep(tmp_path)
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert ("saved" in stdout) == bool(handler)
    # Ctrl-C: the target's own traceback, and none of ours.
    assert stderr.count("Traceback") == (1 if number == signal.SIGINT else 0)


TWICE = """
count = 0
def met(number, frame):
    global count
    count += 1
    print("met", flush=True)
    if count == 2:
        sys.exit(9)
signal.signal(signal.SIGINT, met)
"""


def test_each_interrupt_that_reaches_only_us_is_passed_on(script: Write, tmp_path: Path) -> None:
    """The second one is for those who end at once by it."""
    script(SLEEPS.format(handler=TWICE))
    process = asleep(tmp_path)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "met\n"
    process.communicate(timeout=30)
    assert process.returncode in (9, 130)


@pytest.mark.timeout(180)
def test_spawned_workers_work_and_are_left_alone(script: Write, tmp_path: Path) -> None:
    script(
        """
        import sys
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                watched = "outpace.seams.host" in sys.modules
                ours = any("outpace" in type(f).__module__ for f in sys.meta_path)
                return torch.tensor([index, watched, ours])

        if __name__ == "__main__":
            loader = DataLoader(Rows(), 2, num_workers=1, multiprocessing_context="spawn")
            print([batch.tolist() for batch in loader])
        """
    )
    session = tmp_path / "session"
    done = ran(driven(Target("script", "train.py"), session), tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[[0, 0, 0], [1, 0, 0]], [[2, 0, 0], [3, 0, 0]]]


def test_an_unwritable_session_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SessionError, match="cannot be written"):
        start(
            Target("script", "train.py"),
            session=tmp_path / "file" / "session",
            mode="run",
            spec={"entry": "outpace.tune.apply:begin"},
        )


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no-such-command"):
        start(
            Target("command", "no-such-command", (), str(tmp_path)),
            session=tmp_path / "session",
            mode="run",
            spec={"entry": "outpace.tune.apply:begin"},
        )


def test_output_to_a_file_and_to_stderr(script: Write, tmp_path: Path) -> None:
    path = script("import sys; print('out'); print('err', file=sys.stderr)")
    text = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        from outpace.adapters.launch import start, wait
        from outpace.records.target import Target
        target = Target("script", {str(path)!r}, (), ".")
        spec = {{"entry": "outpace.tune.apply:begin"}}
        for output in (Path("log"), "stderr"):
            child = start(target, session=Path("s"), mode="run", spec=spec, output=output)
            wait(child)
        """
    )
    done = ran([sys.executable, "-c", text], tmp_path)
    assert done.stdout == ""
    assert sorted(done.stderr.split()) == ["err", "out"]
    assert sorted((tmp_path / "log").read_text().split()) == ["err", "out"]

"""Runs of contenders in processes of their own, kept so that a bench that was stopped goes on."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contenders import OURS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = ROOT / ".outpace" / "quality"
DATA = Path(tempfile.gettempdir(), "outpace-bench-quality")
PATIENCE = 3.0
"""times its budget that a run may take, and a minute to start"""


class Failed(Exception):
    """A contender did not do its job; says why."""


def digest(paths: Iterable[Path], *words: str) -> str:
    """A few letters that change with the files and the words."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(path.read_bytes())
    for word in words:
        whole.update(word.encode())
    return whole.hexdigest()[:8]


def path_of(job: dict[str, Any], home: Path) -> Path:
    """Where the answer to a job is kept: by the code that it is made by, and by all that is in it."""
    work, contender = job["work"], job["contender"]
    files = [HERE / "race.py", HERE / "metrics.py", HERE / "workload.py"]
    files += [HERE / "workloads" / f"{work}.py", HERE / "contenders" / f"{contender}.py"]
    if contender == OURS:
        files += (ROOT / "src").rglob("*.py")
    code = digest(files, json.dumps({**job, "data": ""}, sort_keys=True))
    return home / work / f"{contender}-{job['seed']}-{code}.json"


def answer(job: dict[str, Any], home: Path, *, run: bool = True) -> dict[str, Any] | None:
    """What was kept, or is made now where ``run``. Raises Failed."""
    path = path_of(job, home)
    if not path.exists():
        if not run:
            return None
        made = in_child(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(made))
        part.replace(path)
    return dict(json.loads(path.read_text()))


def in_child(job: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process of its own, which is ended with all that it started."""
    patience_s = 60 + PATIENCE * (job["budget_s"] or 600.0)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        path = Path(folder, "job.json")
        path.write_text(json.dumps(job))
        child = subprocess.Popen(
            [sys.executable, str(HERE / "child.py"), str(path)],
            stdout=said,
            stderr=said,
            cwd=folder,
            start_new_session=True,
        )
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {patience_s:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        made = path.with_suffix(".answer")
        if not made.exists():
            said.seek(0)
            lines = [line.strip() for line in said if line.strip()]
            raise Failed(lines[-1] if lines else f"exit code {child.returncode}")
        return dict(json.loads(made.read_text()))

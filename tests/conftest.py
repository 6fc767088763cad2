"""Running real scripts in child processes: plainly, and with outpace in them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import hypothesis
import msgspec
import pytest

from outpace import cli
from outpace.adapters.launch import start, wait
from outpace.measure.machine import describe
from outpace.records.evidence import Evidence
from outpace.records.files import read_json
from outpace.records.target import Target

ROOT = Path(__file__).parent.parent
Outpace = Callable[..., subprocess.CompletedProcess[str]]
"""runs ``outpace words``"""

# On a busy machine any example may take long: a test says what is right, not how soon.
hypothesis.settings.register_profile("outpace", deadline=None)
hypothesis.settings.load_profile("outpace")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Write a script into a folder of its own."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(autouse=True, scope="session")
def workers_that_failed() -> None:
    """A DataLoader waits five seconds for such a worker before it ends it: here for two."""
    with contextlib.suppress(ImportError):
        from torch.utils.data import _utils

        _utils.MP_STATUS_CHECK_INTERVAL = 2.0


@pytest.fixture
def torchrun() -> list[str]:
    """The launcher of this python, for two processes."""
    path = Path(sys.executable).with_name("torchrun")
    if not path.exists():
        pytest.skip("torchrun is not installed beside this python")
    return [str(path), "--standalone", "--nproc-per-node", "2"]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may have more than a MiB, as on a disk that is full then."""
    resource = pytest.importorskip("resource")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def waiting_module(file: Path) -> ModuleType:
    """A module of that file, which is run once any attribute of it is asked for."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plainly(
    path: Path, args: Sequence[str] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """``python script args``."""
    return subprocess.run(
        [sys.executable, str(path), *args],
        cwd=cwd or path.parent,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


RECIPE_ELSEWHERE = """
schema = 1
target = "train.py"
outpace = "0.1.0"
python = "3.11"
torch = "2.13.0"
machine = "another"
fingerprint = "another"
"""
"""the head of a recipe that was made on another machine"""


def outpace(
    *words: str, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """``python -m outpace words``."""
    return subprocess.run(
        [sys.executable, "-m", "outpace", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )


@pytest.fixture
def in_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Outpace]:
    """``outpace words`` in this process, which has torch; modules of ``cwd`` are let go at the end."""
    folders: set[Path] = set()

    def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        folders.add(cwd)
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["outpace", *words])
        monkeypatch.setattr(sys, "path", [*sys.path])
        importlib.invalidate_caches()
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    yield run
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "").parent in folders:
            del sys.modules[name]


def with_entry(
    path: Path,
    folder: Path,
    entry: str = "outpace.tune.observed:begin",
    args: Sequence[str] = (),
    **spec: object,
) -> tuple[int, str]:
    """Run a script with an entry point of ours in it: exit code, and what it printed."""
    full = {
        "entry": entry,
        "session": str(folder),
        "machine": msgspec.to_builtins(describe()),
        "debug": True,
        **spec,
    }
    log = folder / "target.log"
    folder.mkdir(parents=True, exist_ok=True)
    target = Target("script", str(path), tuple(args), str(path.parent))
    child = start(target, session=folder, mode="test", spec=full, env={}, output=log)
    code = wait(child)
    return code, log.read_text()


def evidence_of(folder: Path) -> Evidence:
    """What a watched process wrote down."""
    return read_json(folder / "evidence.json", Evidence)

"""Start a target in a process of its own, as plain python would, with outpace waiting in it.

The process is ``python train.py args`` to the letter. Only a folder on PYTHONPATH brings outpace
in (`adapters/site/sitecustomize.py`), and what python finds there takes itself out again before the
target's first line.

Limits: an interpreter started with ``-I``, ``-E`` or ``-S`` does not look there: it is not watched.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import psutil

from outpace.adapters.folder import SPEC
from outpace.adapters.thrown_away import ThrownAway
from outpace.errors import SessionError, TargetError
from outpace.records.target import Target

log = logging.getLogger("outpace")

SITE = Path(__file__).parent / "site"
TICK_S = 0.2
GRACE_S = 5.0
INTERRUPT_GRACE_S = 2.0
"""time that an interrupt sent to us alone waits for the target to have got it too"""
PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")
WATCHED = "OUTPACE_CHILD"
"""variable that names the spec"""

Output = Literal["inherit", "stderr"] | Path


class Child(subprocess.Popen[bytes]):
    """A target under way. ``interrupted``: Ctrl-C came while it was waited for; ``told_to_end``: a signal
    that ends us came, and was passed on.
    """

    interrupted: bool = False
    told_to_end: bool = False
    thrown_away: ThrownAway | None = None
    spec: str = ""
    """of its environment, which its forks have too"""

    @property
    def notes(self) -> list[str]:
        """What became of the files that it wrote, in sentences; after its end."""
        return self.thrown_away.notes if self.thrown_away is not None else []


def command_of(target: Target) -> list[str]:
    """The target as an argument vector."""
    if target.kind == "command":
        return [target.name, *target.args]
    python = [sys.executable, *(["-u"] if target.unbuffered else [])]
    if target.kind == "module":
        return [*python, "-m", target.name, *target.args]
    return [*python, target.name, *target.args]


def environment(spec_file: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment that brings outpace in, and lets it put everything back."""
    env = {**os.environ, **extra}
    before = env.get("PYTHONPATH")
    if before is not None:
        env["OUTPACE_PYTHONPATH"] = before
    env["PYTHONPATH"] = os.pathsep.join([str(SITE), *([before] if before else [])])
    env[WATCHED] = str(spec_file)
    return env


def start(
    target: Target,
    *,
    session: Path,
    mode: str,
    spec: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    output: Output = "inherit",
    stdin: int | None = None,
) -> Child:
    """Start the target; ``spec`` names in ``entry`` what is called in it when torch is imported.

    ``stdin``: as `subprocess.Popen` takes it; ours unless another is given.

    With ``spec["shadow"]`` the run is thrown away: what it writes goes to a scratch folder that is
    removed at its end; ``spec["allow"]`` lists folders that it may write to nevertheless.
    """
    spec_file = session.absolute() / SPEC.format(mode=mode)
    full = {**spec, "mode": mode, "started_ns": time.perf_counter_ns(), "started": time.time()}
    try:
        session.mkdir(parents=True, exist_ok=True)
        spec_file.write_text(json.dumps(full), encoding="utf-8")
    except OSError as error:
        raise SessionError(
            f"the session folder cannot be written: {error}", "--session names another"
        ) from error
    variables = environment(spec_file, env or {})
    thrown_away = None
    if spec.get("shadow"):
        allow = [session.absolute(), *map(Path, spec.get("allow", ())), *_files_of_ours()]
        thrown_away = ThrownAway(Path(target.cwd), session.absolute(), allow, variables)
        variables |= thrown_away.variables
    log.debug("starting %s (spec: %s)", " ".join(command_of(target)), spec_file)
    with _streams(output) as streams:
        child = _open(target, variables, {**streams, "stdin": stdin}, thrown_away)
    child.thrown_away, child.spec = thrown_away, variables[WATCHED]
    return child


def _open(
    target: Target, env: dict[str, str], streams: dict[str, Any], thrown_away: ThrownAway | None
) -> Child:
    command = command_of(target)

    def open_() -> Child:
        return Child(command, env=env, cwd=target.cwd, **streams)

    try:
        return open_() if thrown_away is None else thrown_away.guarded(open_)
    except FileNotFoundError as error:
        if error.filename != command[0]:
            raise
        raise TargetError(
            f"{command[0]!r} is no command here", "check its name and PATH"
        ) from error
    except PermissionError as error:
        raise TargetError(f"{command[0]} cannot be run: {error.strerror}") from error
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        raise TargetError(
            f"{command[0]} cannot be run: it does not say by what",
            "begin it with a line such as #!/bin/sh, or name the program: bash FILE",
        ) from error


def _files_of_ours() -> list[Path]:
    """Files that our output goes to: a target may open its own by name, as /dev/stdout."""
    found = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.append(Path(os.readlink(f"/proc/self/fd/{number}")))
    return [path for path in found if path.is_file()]


@contextlib.contextmanager
def _streams(output: Output) -> Iterator[dict[str, Any]]:
    """Where the target's output goes, as Popen takes it."""
    sys.stdout.flush()
    if isinstance(output, Path):
        with output.open("wb") as file:
            yield {"stdout": file, "stderr": subprocess.STDOUT}
    else:
        yield {"stdout": 2} if output == "stderr" else {}


def wait(
    child: Child,
    *,
    on_tick: Callable[[], None] | None = None,
    timeout: float | None = None,
) -> int:
    """Wait for the end; the exit code as a shell would see it (128 + signal).

    Ctrl-C reaches the target by itself, as all that the terminal started, and it ends as it would:
    ``child.interrupted`` then says so. Signals that reach only us are passed on. After ``timeout``
    seconds it is stopped.
    """
    begun = time.monotonic()
    interrupts: list[float] = []
    waited = 0
    with _signals(child, interrupts):
        while True:
            if _has_ended(child, TICK_S):
                break
            if on_tick is not None:
                on_tick()
            while (
                len(interrupts) > waited
                and time.monotonic() > interrupts[waited] + INTERRUPT_GRACE_S
            ):
                waited += 1
                if not _is_foreground():
                    child.send_signal(signal.SIGINT)
            if timeout is not None and time.monotonic() - begun > timeout:
                stop(child)
        code = child.wait()
        if child.thrown_away is not None:  # a second Ctrl-C is not to leave any of it behind
            if code != 0:
                _end(_left_by(child))
            child.thrown_away.end()
    child.interrupted = bool(interrupts)
    if child.thrown_away is not None and interrupts:
        # Also where the target met it and went on to a good end: its run was cut short.
        return 128 + signal.SIGINT
    return 128 - code if code < 0 else code


def _has_ended(child: Child, seconds: float) -> bool:
    """Wait for the end, but not longer; without polling where the system can tell."""
    if child.returncode is None:
        try:
            process = os.pidfd_open(child.pid)
        except (AttributeError, OSError):  # an older kernel, a sandbox that refuses it
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(seconds)
            return child.returncode is not None
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(1e3 * seconds)
        finally:
            os.close(process)
    return child.poll() is not None


@contextlib.contextmanager
def _signals(child: Child, interrupts: list[float]) -> Iterator[None]:
    """Note interrupts, pass other signals on."""

    def interrupted(number: int, frame: object) -> None:
        interrupts.append(time.monotonic())

    def passed_on(number: int, frame: object) -> None:
        if number == signal.SIGQUIT and _is_foreground():
            return  # by its key, which the target gets too
        child.told_to_end = child.told_to_end or number in (signal.SIGTERM, signal.SIGHUP)
        child.send_signal(number)

    numbers = {getattr(signal, n): passed_on for n in PASSED_ON if hasattr(signal, n)}
    numbers[signal.SIGINT] = interrupted
    before: dict[int, Any] = {}
    try:
        # In a thread other than the main one there are no handlers to set.
        with contextlib.suppress(ValueError):
            for number, handler in numbers.items():
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _is_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches us, and so the target as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def stop(child: Child) -> None:
    """End the target and all that it started: asked first, killed after."""
    family = _started_by(child.pid)
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    family += [process for process in _started_by(child.pid) if process not in family]
    child.kill()
    child.wait()
    _end(family)
    if child.thrown_away is not None:
        child.thrown_away.end()


def _left_by(child: Child) -> list[psutil.Process]:
    """What outlives a target that died: workers that an experiment had stopped do not notice."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            own = process.pid not in (os.getpid(), child.pid)
            if own and process.environ().get(WATCHED) == child.spec:
                found.append(process)
    return found


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process and of those below it; of what cannot be asked none."""
    found = 0.0
    with contextlib.suppress(psutil.Error, OSError):
        for each in [psutil.Process(pid), *_started_by(pid)]:
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                found += times.user + times.system
    return found


def _started_by(pid: int) -> list[psutil.Process]:
    """The processes below one; none where the system does not tell whose they are."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except (psutil.Error, OSError):
        return []


def _end(family: list[psutil.Process]) -> None:
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(family, timeout=1.0)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=1.0)

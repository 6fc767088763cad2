"""Start a target in a process of its own, as plain python would, with outpace waiting in it.

The process is ``python train.py args`` to the letter. Only a folder on PYTHONPATH brings outpace
in, and what it finds there takes itself out again before the target's first line.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import psutil

from outpace.errors import SessionError, TargetError
from outpace.records.target import Target

SITE = Path(__file__).parent / "site"
TICK_S = 0.2
GRACE_S = 5.0

Output = Literal["inherit", "stderr"] | Path


def command_of(target: Target) -> list[str]:
    """The target as an argument vector."""
    if target.kind == "command":
        return [target.name, *target.args]
    if target.kind == "module":
        return [sys.executable, "-m", target.name, *target.args]
    return [sys.executable, target.name, *target.args]


def environment(target: Target, spec_file: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment that brings outpace in, and lets it put everything back."""
    env = {**os.environ, **extra}
    before = os.environ.get("PYTHONPATH")
    if before is not None:
        env["OUTPACE_PYTHONPATH"] = before
    env["PYTHONPATH"] = os.pathsep.join([str(SITE), *([before] if before else [])])
    env["OUTPACE_CHILD"] = str(spec_file)
    if target.kind != "command":
        env["OUTPACE_DIRECT"] = "1"
    return env


def start(
    target: Target,
    *,
    session: Path,
    mode: str,
    spec: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    output: Output = "inherit",
) -> subprocess.Popen[bytes]:
    """Start the target; ``spec`` names the entry point of ours that is called in it."""
    spec_file = session / f"spec-{mode}.json"
    full = {**spec, "mode": mode, "started_ns": time.perf_counter_ns()}
    try:
        session.mkdir(parents=True, exist_ok=True)
        spec_file.write_text(json.dumps(full))
    except OSError as error:
        raise SessionError(f"the session folder cannot be written: {error}") from error
    streams: dict[str, Any] = {}
    log = None
    if isinstance(output, Path):
        log = output.open("wb")
        streams = {"stdout": log, "stderr": subprocess.STDOUT}
    elif output == "stderr":
        streams = {"stdout": sys.stderr.fileno()}
    sys.stdout.flush()
    try:
        return subprocess.Popen(
            command_of(target),
            env=environment(target, spec_file, env or {}),
            cwd=target.cwd,
            **streams,
        )
    except FileNotFoundError as error:
        raise TargetError(f"{command_of(target)[0]} cannot be run: {error.strerror}") from error
    finally:
        if log is not None:
            log.close()


def wait(
    child: subprocess.Popen[bytes],
    *,
    on_tick: Callable[[], None] | None = None,
    timeout: float | None = None,
) -> int:
    """Wait for the end; the exit code as a shell would see it (128 + signal).

    Ctrl-C reaches the target itself, which ends as it would; SIGTERM is passed on to it.
    """
    begun = time.monotonic()
    interrupts: list[int] = []
    handlers = _handle(child, interrupts)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(TICK_S if on_tick or timeout else None)
                break
            if on_tick is not None:
                on_tick()
            if timeout is not None and time.monotonic() - begun > timeout:
                stop(child)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if interrupts and code in (0, 1, -signal.SIGINT, 130):
        return 130
    return 128 - code if code < 0 else code


def _handle(child: subprocess.Popen[bytes], interrupts: list[int]) -> dict[int, Any]:
    handlers: dict[int, Any] = {}

    def passed(number: int, _: object) -> None:
        if number == signal.SIGINT:
            interrupts.append(number)
        else:
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):
            handlers[number] = signal.signal(number, passed)
    return handlers


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the target and all that it started: asked first, killed after."""
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(child.pid).children(recursive=True)
        child.terminate()
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
    child.wait()

"""The folder of a session: there, and nobody else's.

Files in it are replaced and removed without asking, so that a folder with files of another origin is
not taken for one. What tells a session's folder is the spec that each process of the target is given.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outpace.errors import SessionError

SPEC = "spec-{mode}.json"
MODES = ("experiment", "run", "train")
LOOKING_S = 0.02
"""more than `in_use`, which locks it too, has it for"""


def not_made(folder: Path, error: OSError) -> SessionError:
    """What is told where a session's folder cannot be made."""
    why = error.strerror or error
    return SessionError(
        f"the session folder {folder} cannot be made: {why}", "--session names another"
    )


def claimed(folder: Path) -> Path:
    """The folder, made where it was not there. Raises SessionError where it cannot serve."""
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise not_made(folder, error) from error
    if not empty and not any(_is_spec(folder / SPEC.format(mode=mode), mode) for mode in MODES):
        raise SessionError(
            f"{folder} holds files, and none of a session", "name a new folder with --session"
        )
    return folder


def _is_spec(path: Path, mode: str) -> bool:
    """Whether a file is a spec of ours; an empty one is what a full disk leaves of it."""
    try:
        text = path.read_text(encoding="utf-8")
        told = json.loads(text) if text else None
    except (OSError, ValueError):
        return False
    if not isinstance(told, dict):
        return not text
    return told.get("mode") == mode and ("entry" in told or "what" in told)


@contextmanager
def reserved(folder: Path, *, exactly: bool) -> Iterator[Path]:
    """The folder, claimed, and no other process's meanwhile; where it is one's, the first that is free of
    "folder-2", "folder-3" and so on. Raises SessionError where it is to be ``exactly`` that one.
    """
    numbers = itertools.count(2)
    own = claimed(folder)
    while (lock := _locked(own)) is None:
        if exactly:
            raise SessionError(
                f"another run is using the session folder {folder}", "name another with --session"
            )
        own = claimed(folder.with_name(f"{folder.name}-{next(numbers)}"))
    try:
        yield own
    finally:
        os.close(lock)


def in_use(folder: Path) -> bool | None:
    """Whether a process has it reserved; None where it is not there, or nothing tells."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None  # a file system that has no locks
    finally:
        os.close(lock)
    return False


def _locked(folder: Path) -> int | None:
    """A lock on it, to be closed; None where another process has it."""
    lock = os.open(folder, os.O_RDONLY)
    for _ in range(2):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOKING_S)
        except OSError:
            return lock  # a file system that has no locks
        else:
            return lock
    os.close(lock)
    return None

"""The folder that is written before it takes its name: beside it, one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from outpace.errors import DataError, UsageError
from outpace.serve.meta import is_pack
from outpace.serve.packing import Journal
from outpace.serve.reading import unreadable

LOCK = "lock"


def target_of(dest: str | os.PathLike[str]) -> Path:
    """Where a store of that name lies: a link stays one, and what it leads to is written."""
    path = Path(os.path.abspath(dest))
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_free(dest: Path, *, force: bool) -> None:
    """Raises UsageError where something is in the way that is not to be replaced."""
    if not os.path.lexists(dest):
        if not dest.parent.is_dir():
            raise UsageError(f"there is no folder {dest.parent}", "make it first")
    elif not is_pack(dest):
        raise UsageError(
            f"{dest} is there already, and outpace did not pack it", "choose another name"
        )
    elif not force:
        raise UsageError(f"{dest} is there already", "replace it with --force, or --verify it")


def partial_of(dest: Path) -> Path:
    """Where it is written."""
    return dest.with_name(f".{dest.name}.partial")


@contextlib.contextmanager
def partial(dest: Path) -> Iterator[Path]:
    """Gone afterwards, but for a journal that tells that there is work in it."""
    folder = partial_of(dest)
    try:
        folder.mkdir(exist_ok=True)
        inside = {path.name for path in folder.iterdir()}
        if inside and LOCK not in inside and not is_pack(folder):
            raise DataError(f"{folder} is in the way", "move it: outpace did not write it")
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise unreadable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"{dest} is being packed by another process already",
                "wait for it, or choose another DEST",
            ) from error
        except OSError:
            pass  # a file system that has no locks
        if not os.path.lexists(dest) and is_pack(old_of(dest)):
            # One that was to replace it was killed between its two renames.
            old_of(dest).rename(dest)
        try:
            yield folder
        except BaseException as error:
            journal = Journal.load(folder)
            if journal is None or not journal.done:
                shutil.rmtree(folder, ignore_errors=True)
            elif isinstance(error, DataError):
                stays = f"{folder} stays: the same command goes on from there"
                hint = f"{error.hint}; {stays}" if error.hint else stays
                raise type(error)(error.message, hint) from error
            raise


def clear(folder: Path) -> None:
    """Begin anew."""
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()


def publish(folder: Path, dest: Path, leftovers: tuple[str, ...]) -> None:
    """Give a complete folder its name; what was there under that name goes."""
    for path in folder.iterdir():
        _sync(path)
    for path in folder.iterdir():
        if path.name.startswith("."):
            path.unlink()
    _sync(folder)
    old = old_of(dest)
    if dest.exists():
        shutil.rmtree(old, ignore_errors=True)
        dest.rename(old)
    try:
        folder.rename(dest)
    except OSError:
        if old.exists():
            old.rename(dest)
        raise
    # Until now nobody could take the folder, and where it had not got its name it was to be gone on with.
    for name in (*leftovers, LOCK):
        (dest / name).unlink(missing_ok=True)
    _sync(dest.parent)
    shutil.rmtree(old, ignore_errors=True)


def old_of(dest: Path) -> Path:
    """Where what it replaces is, while it does."""
    return dest.with_name(f".{dest.name}.old")


def _sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

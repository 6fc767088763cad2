"""Files as they physically are, below what a thrown-away run has replaced.

All system calls here are ``posix``'s own: `outpace.seams.writes.calls` replaces those of ``os``.
"""

from __future__ import annotations

import _io
import errno
import mmap
import os
import posix
import stat

MOST_COPIED = 8 << 30
CHUNK = 1 << 24


def shared_number(path: str) -> memoryview[int]:
    """One number in memory that all processes of a run share."""
    file = posix.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if posix.fstat(file).st_size < 8:
            posix.ftruncate(file, 8)
        return memoryview(mmap.mmap(file, 8)).cast("Q")
    finally:
        posix.close(file)


def read_journal(journal: str, start: int = 0, end: int | None = None) -> list[tuple[str, str]]:
    """(kind, path) of every entry between two sizes; none where there is no journal."""
    try:
        with _io.open(journal, "rb") as file:
            file.seek(start)
            data = file.read() if end is None else file.read(end - start)
    except FileNotFoundError:
        return []
    entries = [os.fsdecode(entry) for entry in data.split(b"\0") if entry]
    return [(entry[0], entry[1:]) for entry in entries]


def mode_of(path: str) -> int | None:
    """``st_mode``, links not followed; None where there is nothing."""
    try:
        return posix.lstat(path).st_mode
    except OSError:
        return None


def is_folder(path: str) -> bool:
    """Whether a physical path is a folder."""
    try:
        return stat.S_ISDIR(posix.stat(path).st_mode)
    except OSError:
        return False


def is_link(path: str) -> bool:
    """Whether a physical path is a symbolic link."""
    kind = mode_of(path)
    return kind is not None and stat.S_ISLNK(kind)


def copy(source: str, target: str) -> None:
    """Copy a file, link or folder with its mode and times."""
    status = posix.lstat(source)
    if stat.S_ISLNK(status.st_mode):
        posix.symlink(posix.readlink(source), target)
        return
    if stat.S_ISDIR(status.st_mode):
        posix.mkdir(target)
        for name in posix.listdir(source):
            copy(f"{source}/{name}", f"{target}/{name}")
    elif stat.S_ISREG(status.st_mode):
        _copy_bytes(source, target, status.st_size)
    else:
        return
    posix.chmod(target, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
    posix.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_bytes(source: str, target: str, size: int) -> None:
    if size > MOST_COPIED:
        raise OSError(
            errno.EFBIG,
            f"opened for writing in a run that is thrown away, and too large to copy first "
            f"({size / 2**30:.0f} GiB)",
            source,
        )
    with _io.open(source, "rb") as reader, _io.open(target, "wb") as writer:
        while chunk := reader.read(CHUNK):
            writer.write(chunk)

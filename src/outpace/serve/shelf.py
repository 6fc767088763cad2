"""Samples kept on disk as they are prepared, for all workers and ranks of a machine and later runs.

A sample is a row of the index (which file, where, how long, checksum) and a stretch of a file that
its process writes. Readers map the files: what is read often stays in memory as far as there is any.
Nothing is thrown out: once the limit is reached, no more is kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import pickle
import struct
import threading
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.serve.flags import shared_flags
from outpace.serve.forks import lock_for_forks
from outpace.serve.nests import each
from outpace.serve.samples import is_tensor, tensor_bytes

ALIGN = 64
INDEX = "index.npy"
HELD = "held"
"""a file that each process with the shelf has locked, for others to share; its time is when one opened it"""
COUNTING = "counting"
"""a file that is locked while bytes are counted"""
FILE, START, LENGTH, CHECK = range(4)
"""columns of the index; a file of 0 means that there is no such sample. In its last row: whether all is
void, and the bytes that are taken"""
LOCK = lock_for_forks()


class Shelf:
    """Kept samples of one data set, prepared in one way.

    ``folder``: made if there is none; ``limit``: bytes that all processes together may take there.
    """

    def __init__(self, folder: Path, size: int, limit: int) -> None:
        self.folder, self.size, self.limit = folder, size, limit
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        weakref.finalize(self, os.close, _hold(folder / HELD))
        self.index = _open_index(folder / INDEX, size)
        self.checked = shared_flags(size)
        self._maps: dict[int, mmap.mmap] = {}
        self._own: tuple[int, int] | None = None
        """process and number of the file that this process writes"""
        self._end = 0
        self.full = False

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "size": self.size, "limit": self.limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        """Samples that are kept."""
        return int(np.count_nonzero(self.index[:-1, FILE]))

    @property
    def taken(self) -> int:
        """Bytes that are taken, those of samples that were found broken among them."""
        return int(self.index[-1, LENGTH])

    @property
    def void(self) -> bool:
        """Whether what is kept is of no use any more, to any process."""
        return bool(self.index[-1, FILE])

    def give_up(self) -> None:
        """Have no process, and no later run, be given what is kept here: its source has changed."""
        self.index[-1, FILE] = 1

    def get(self, index: int) -> Any:
        """A kept sample, in memory of its own; None where there is none, or it is broken."""
        number, start, length, check = (int(n) for n in self.index[index])
        if not number or self.void:
            return None
        try:
            data = memoryview(self._mapped(number, start + length))[start : start + length]
        except (FileNotFoundError, ValueError):  # gone, or cut short
            self.index[index, FILE] = 0
            return None
        except OSError:
            return None
        if not self.checked[index]:
            if zlib.crc32(data) != check:
                self.index[index, FILE] = 0
                return None
            self.checked[index] = True
        # torch writes also to arrays that must not be written to: to what is mapped, with a crash.
        return unpacked(data, own=True)

    def put(self, index: int, sample: Any) -> bool:
        """Keep a sample; whether it is kept."""
        if self.full or self.void or self.index[index, FILE]:
            return bool(self.index[index, FILE]) and not self.void
        try:
            data = packed(sample)
        except Exception:  # it cannot be kept, which is no fault of the sample's
            return False
        with LOCK:
            try:
                if not self._takes(len(data)):
                    raise OSError(errno.ENOSPC, "the limit is reached")
                number, start = self._written(data)
            except OSError:  # a full disk: what is kept is kept
                self.full = True
                return False
            row = self.index[index]
            row[START], row[LENGTH], row[CHECK] = start, len(data), zlib.crc32(data)
            row[FILE] = number  # last: only now is it there for others
        return True

    def _takes(self, size: int) -> bool:
        """Whether so many bytes more are within the limit; they count from then on, for all processes."""
        with (self.folder / COUNTING).open("ab") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # until it is closed
            taken = int(self.index[-1, LENGTH]) + size
            if taken <= self.limit:
                self.index[-1, LENGTH] = taken
            return taken <= self.limit

    def _written(self, data: bytes) -> tuple[int, int]:
        """Into this process's own file: its number, and where in it."""
        own = self._own
        if own is None or own[0] != os.getpid() or not (self.folder / f"{own[1]}.kept").exists():
            self._own = own = (os.getpid(), self._new_file())
            self._end = 0
        number, start = own[1], self._end
        with (self.folder / f"{number}.kept").open("r+b", buffering=0) as file:
            if os.pwrite(file.fileno(), data, start) < len(data):
                raise OSError(errno.ENOSPC, "the disk is full")
        self._end += len(data)
        return number, start

    def _new_file(self) -> int:
        number = 1 + int(
            self.index[:-1, FILE].max(initial=0)
        )  # that of a file that is gone is told too
        while True:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(
                    self.folder / f"{number}.kept", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
                )
                os.close(descriptor)
                return number
            number += 1

    def _mapped(self, number: int, least: int) -> mmap.mmap:
        found = self._maps.get(number)
        if found is None or len(found) < least:
            with (self.folder / f"{number}.kept").open("rb") as file:
                found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(found) < least:
                raise ValueError(f"{number}.kept is too short")
            self._maps[number] = found
        return found


def _hold(path: Path) -> int:
    """A file that stays locked until it is closed, in the forks of this process too."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    with contextlib.suppress(OSError):  # a file system that has no locks
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(descriptor)
    return descriptor


def _open_index(path: Path, size: int) -> NDArray[np.uint64]:
    """Mapped from the file, which is made whole or not at all: a row a sample, and one for all."""
    if not path.exists():
        temporary = path.with_name(f".{os.getpid()}.{threading.get_ident()}.{INDEX}")
        try:
            np.save(temporary, np.zeros((size + 1, 4), np.uint64))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return np.lib.format.open_memmap(path, mode="r+")


@dataclass(frozen=True)
class _Tensor:
    """A tensor as its bytes: numpy does not know all of torch's types."""

    kind: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


def _plain(leaf: Any) -> Any:
    if type(leaf) is not torch.Tensor or not is_tensor(leaf):  # pickle knows other classes
        return leaf
    kind, data = tensor_bytes(leaf)
    return _Tensor(kind, tuple(leaf.shape), data)


def _again(leaf: Any) -> Any:
    if not isinstance(leaf, _Tensor):
        return leaf
    kind = getattr(torch, leaf.kind)
    if not leaf.data.size:
        return torch.empty(leaf.shape, dtype=kind)
    data = leaf.data if leaf.data.flags.writeable else leaf.data.copy()
    return torch.from_numpy(data).view(kind).reshape(leaf.shape)


def packed(sample: Any) -> bytes:
    """A sample with its arrays behind one another, so that they can be read where they lie."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(
        each(sample, _plain, exact=True), protocol=5, buffer_callback=buffers.append
    )
    parts = [bytes(buffer.raw()) for buffer in buffers]
    sizes = [len(head), *map(len, parts)]
    found = bytearray()
    for part in (struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes), head, *parts):
        found += part
        found += bytes(-len(found) % ALIGN)
    return bytes(found)


def unpacked(data: memoryview, *, own: bool = False) -> Any:
    """The sample again; its arrays are views of ``data`` unless they are to have memory of their ``own``, its
    tensors are copies: those can't be guarded.
    """
    (count,) = struct.unpack_from("<Q", data)
    sizes = struct.unpack_from(f"<{count}Q", data, 8)
    at = -(-8 * (1 + count) // ALIGN) * ALIGN
    parts: list[Any] = []
    for size in sizes:
        part = data[at : at + size]
        parts.append(np.array(part) if own and parts else part)  # the first is read here
        at += -(-size // ALIGN) * ALIGN
    return each(pickle.loads(parts[0], buffers=parts[1:]), _again, exact=True)


def kept_and_read(sample: Any) -> Any:
    """What a shelf would give of a sample."""
    return unpacked(memoryview(packed(sample)))

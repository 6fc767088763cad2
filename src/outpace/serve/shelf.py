"""Samples kept on disk as they are prepared, for all workers and ranks of a machine and later runs.

A sample is a row of the index (which file, where, how long, checksum) and a stretch of a file that
its process writes. Readers map the files: what is read often stays in memory as far as there is any,
and no copy is made. Nothing is thrown out: once the limit is reached, no more is kept.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import is_tensor

from outpace.serve.nests import each

ALIGN = 64
INDEX = "index.npy"
COUNTED = 256
"""puts after which the bytes of all processes are counted anew"""
FILE, START, LENGTH, CHECK = range(4)
"""columns of the index; a file of 0 means that there is no such sample"""


class Shelf:
    """Kept samples of one data set, prepared in one way.

    ``folder``: made if there is none; ``limit``: bytes that all processes together may keep there.
    """

    def __init__(self, folder: Path, size: int, limit: int) -> None:
        self.folder, self.size, self.limit = folder, size, limit
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.index = _open_index(folder / INDEX, size)
        self.lock = threading.Lock()
        self.checked: NDArray[np.bool_] = np.zeros(size, np.bool_)
        self._maps: dict[int, mmap.mmap] = {}
        self._own: tuple[int, int, int] | None = None
        """process, number and descriptor of the file that this process writes"""
        self._end = 0
        self.full = False
        self._taken = self._since = 0
        """bytes on the shelf when last counted, and puts since then"""

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "size": self.size, "limit": self.limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        """Samples that are kept."""
        return int(np.count_nonzero(self.index[:, FILE]))

    @property
    def bytes(self) -> int:
        """Bytes that they take."""
        return int(self.index[:, LENGTH].sum())

    def get(self, index: int) -> Any:
        """A kept sample, its arrays not to be written to; None where there is none, or it is broken."""
        number, start, length, check = (int(n) for n in self.index[index])
        if not number:
            return None
        try:
            data = memoryview(self._mapped(number, start + length))[start : start + length]
        except (OSError, ValueError):
            return None
        if not self.checked[index]:
            if zlib.crc32(data) != check:
                self.index[index, FILE] = 0
                return None
            self.checked[index] = True
        return unpacked(data)

    def put(self, index: int, sample: Any) -> bool:
        """Keep a sample; whether it is kept."""
        if self.full or self.index[index, FILE]:
            return bool(self.index[index, FILE])
        data = packed(sample)
        with self.lock:
            if self._since % COUNTED == 0:
                self._taken = self.bytes
            self._since += 1
            if self._taken + len(data) > self.limit:
                self.full = True
                return False
            try:
                number, descriptor = self._writing()
                start = self._end
                os.pwrite(descriptor, data, start)
            except OSError:  # a full disk: what is kept is kept
                self.full = True
                return False
            self._end += -(-len(data) // ALIGN) * ALIGN
            self._taken += len(data)
            row = self.index[index]
            row[START], row[LENGTH], row[CHECK] = start, len(data), zlib.crc32(data)
            row[FILE] = number  # last: only now is it there for others
        return True

    def _writing(self) -> tuple[int, int]:
        if self._own is not None and self._own[0] == os.getpid():
            return self._own[1:]
        number = 1 + len(list(self.folder.glob("*.kept")))
        while True:
            with contextlib.suppress(FileExistsError):
                path = self.folder / f"{number}.kept"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                break
            number += 1
        self._own, self._end = (os.getpid(), number, descriptor), 0
        return number, descriptor

    def _mapped(self, number: int, least: int) -> mmap.mmap:
        found = self._maps.get(number)
        if found is None or len(found) < least:
            with (self.folder / f"{number}.kept").open("rb") as file:
                found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(found) < least:
                raise ValueError(f"{number}.kept is too short")
            self._maps[number] = found
        return found


def _open_index(path: Path, size: int) -> NDArray[np.uint64]:
    """Mapped from the file, which is made whole or not at all."""
    if not path.exists():
        temporary = path.with_name(f".{INDEX}.{os.getpid()}.{threading.get_ident()}")
        np.save(temporary.with_suffix(".npy"), np.zeros((size, 4), np.uint64))
        with contextlib.suppress(FileExistsError):
            os.link(temporary.with_suffix(".npy"), path)
        temporary.with_suffix(".npy").unlink()
    return np.lib.format.open_memmap(path, mode="r+")


class _Tensor:
    """A tensor as the array that it is."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array


def packed(sample: Any) -> bytes:
    """A sample with its arrays behind one another, so that they can be read where they lie."""
    buffers: list[pickle.PickleBuffer] = []
    plain = each(sample, lambda leaf: _Tensor(leaf.numpy()) if is_tensor(leaf) else leaf)
    head = pickle.dumps(plain, protocol=5, buffer_callback=buffers.append)
    parts = [bytes(buffer.raw()) for buffer in buffers]
    sizes = [len(head), *map(len, parts)]
    found = bytearray()
    for part in (struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes), head, *parts):
        found += part
        found += bytes(-len(found) % ALIGN)
    return bytes(found)


def unpacked(data: memoryview) -> Any:
    """The sample again; its arrays are views of ``data``, its tensors copies: those can't be guarded."""
    (count,) = struct.unpack_from("<Q", data)
    sizes = struct.unpack_from(f"<{count}Q", data, 8)
    at = -(-8 * (1 + count) // ALIGN) * ALIGN
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += -(-size // ALIGN) * ALIGN
    sample = pickle.loads(parts[0], buffers=parts[1:])
    return each(
        sample,
        lambda leaf: torch.from_numpy(leaf.array.copy()) if isinstance(leaf, _Tensor) else leaf,
    )

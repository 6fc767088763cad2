"""``scandir`` over a folder that is partly in the scratch folder."""

from __future__ import annotations

import os
import posix
import stat
from collections.abc import Iterator
from typing import Any

from outpace.seams.writes.overlay import Overlay


class Entry:
    """What ``os.DirEntry`` is, for a virtual path."""

    def __init__(self, overlay: Overlay, name: Any, path: Any, virtual: str) -> None:
        self.name = name
        self.path = path
        self._overlay = overlay
        self._virtual = virtual

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``os.stat`` of the entry."""
        path = self._overlay.final(self._virtual) if follow_symlinks else self._virtual
        return posix.lstat(self._overlay.place(path))

    def inode(self) -> int:
        """The number of the entry's inode."""
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self._mode(False))

    def is_junction(self) -> bool:
        """Never, on this system."""
        return False

    def _mode(self, follow: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except FileNotFoundError:
            return 0


class Entries:
    """The entries of a folder; a context manager and iterator as ``os.scandir`` gives it."""

    def __init__(self, overlay: Overlay, given: Any) -> None:
        self._iterator: Iterator[Any]
        self._real: Any = None
        overlay.sync()
        if isinstance(given, int):
            text = overlay.folder_of(given)
        else:
            text = overlay.text("." if given is None else given)
        path = overlay.final(overlay.canonical(text))
        changed = path in overlay.folders or _any_gone(overlay, path)
        if overlay.place(path) == text and not changed and not overlay.inside:
            self._real = posix.scandir(given)
            self._iterator = iter(self._real)
            return
        head: Any = "." if given is None else "" if isinstance(given, int) else os.fspath(given)
        names = overlay.names(path)
        as_bytes = isinstance(head, bytes)
        shown = [os.fsencode(n) if as_bytes else n for n in names]
        base = path.rstrip("/")
        self._iterator = iter(
            Entry(overlay, name, os.path.join(head, name), f"{base}/{plain}")
            for name, plain in zip(shown, names, strict=True)
        )

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the folder go."""
        if self._real is not None:
            self._real.close()


def _any_gone(overlay: Overlay, path: str) -> bool:
    if overlay.is_gone(path):
        return True
    base = path.rstrip("/") + "/"
    return any(p.startswith(base) for p in overlay.gone)

"""Where a path's bytes are: in the user's file, or in its copy in the scratch folder.

Paths are *virtual* (what the target means), absolute, with the links of their folders followed.
``place`` gives the physical path. ``tree`` mirrors what was written; ``gone`` holds paths whose
real files are hidden because the target deleted or replaced them. Both are shared by all processes
of a run through a journal that only grows, and a counter of its bytes in shared memory; while that
counter is 0 nothing was written and every read goes straight through.

All system calls here are ``posix``'s own: `outpace.seams.writes.calls` replaces those of ``os``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posix
import stat
from typing import Any

from outpace.seams.writes.areas import Areas
from outpace.seams.writes.physical import (
    copy,
    is_folder,
    mode_of,
    read_journal,
    shared_number,
)

MOST_LINKS = 40
MOST_KNOWN = 100_000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Overlay:
    """The scratch folder of one run, and what the target did in it."""

    def __init__(self, scratch: str, areas: Areas) -> None:
        self.tree = f"{scratch}/tree"
        self.journal = f"{scratch}/journal"
        self.areas = areas
        os.makedirs(self.tree, exist_ok=True)
        self.size = shared_number(f"{scratch}/size")
        self.seen = 0
        self.folders: set[str] = set()
        self.gone: set[str] = {scratch}  # it may lie beneath the working folder
        self.written: dict[str, None] = {}
        self.known_folders: dict[str, str] = {}
        self.untouched: set[str | bytes] = set()
        self.inside = False
        """the working directory exists in the scratch folder only"""

    # --- what all processes of a run know ------------------------------------------------------

    def sync(self) -> None:
        """Read what other processes noted, and this one."""
        size = self.size[0]
        if size == self.seen:
            return
        for kind, path in read_journal(self.journal, self.seen, size):
            if kind == "d":
                self.folders.add(path)
            elif kind == "g":
                self.gone.add(path)
            else:
                self.written[path] = None
        self.seen = size
        self.forget()

    def forget(self) -> None:
        """Look paths up anew."""
        self.known_folders.clear()
        self.untouched.clear()

    def note(self, kind: str, path: str, *, again: bool = False) -> None:
        """Tell all processes: a folder in the tree (d), a hidden path (g), a written file (w). ``again``:
        that it is another one now, as a link that leads elsewhere.
        """
        known = {"d": self.folders, "g": self.gone, "w": self.written}[kind]
        if path in known and not again:
            return
        file = posix.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            posix.write(file, os.fsencode(kind + path) + b"\0")
            self.size[0] = max(self.size[0], posix.fstat(file).st_size)
        finally:
            posix.close(file)
        self.sync()

    # --- from what the target says to a virtual path -------------------------------------------

    def text(self, path: Any, dir_fd: int | None = None) -> str:
        """``path`` as an absolute string, links not followed."""
        given = os.fsdecode(path)
        if not given.startswith("/"):
            given = f"{self.cwd() if dir_fd is None else self.folder_of(dir_fd)}/{given}"
        return self.virtual(given)

    def virtual(self, path: str) -> str:
        """A path in the tree as the target knows it; others as they are."""
        if path.startswith(self.tree) and path[len(self.tree) : len(self.tree) + 1] in ("", "/"):
            return path[len(self.tree) :] or "/"
        return path

    def cwd(self) -> str:
        """The working directory as the target knows it."""
        return self.virtual(posix.getcwd())

    def folder_of(self, fd: int) -> str:
        """The folder that an open descriptor stands for."""
        return self.virtual(posix.readlink(f"/proc/self/fd/{fd}"))

    def canonical(self, path: str) -> str:
        """An absolute path with the links of its folders followed, its own last name not."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self.follow(path)
        found = self.known_folders.get(folder)
        if found is None:
            found = self.known_folders[folder] = self.follow(folder).rstrip("/")
        return f"{found}/{name}"

    def final(self, canonical: str) -> str:
        """The same with its last name's link followed too."""
        return canonical if self.link(canonical) is None else self.follow(canonical)

    def follow(self, path: str) -> str:
        """``realpath`` among virtual paths."""
        left, done, links = path.split("/")[::-1], "", 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                # The kernel does not go back either from what is no folder.
                if done and not is_folder(self.place(done)):
                    code = errno.ENOTDIR if self.exists(done) else errno.ENOENT
                    raise OSError(code, os.strerror(code), path)
                done = done.rpartition("/")[0]
                continue
            target = self.link(f"{done}/{part}")
            if target is None:
                done = f"{done}/{part}"
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            done = "" if target.startswith("/") else done
            left += target.split("/")[::-1]
        return done or "/"

    def link(self, canonical: str) -> str | None:
        """Where a symbolic link leads; None where it is none, and of what /proc shows of a pipe or of a file
        without a name: the kernel follows that itself.
        """
        try:
            target = posix.readlink(self.place(canonical))
        except OSError:
            return None
        if canonical.startswith("/proc/") and (target[:1] != "/" or mode_of(target) is None):
            return None
        return self.virtual(target)

    # --- from a virtual path to its bytes ------------------------------------------------------

    def place(self, path: str) -> str:
        """The physical path; one in the tree that does not exist where the target deleted it."""
        if path.rpartition("/")[0] in self.folders:
            upper = self.tree + path
            kind = mode_of(upper)
            if kind is not None:
                both = stat.S_ISDIR(kind) and not self.is_gone(path) and is_folder(path)
                return path if both else upper
        return self.tree + path if self.is_gone(path) else path

    def in_tree(self, place: str) -> bool:
        """Whether a physical path is one of the run's."""
        return place.startswith(self.tree + "/")

    def is_gone(self, path: str) -> bool:
        """Whether the real file is hidden, itself or by a folder above it."""
        if not self.gone:
            return False
        while path:
            if path in self.gone:
                return True
            path = path.rpartition("/")[0]
        return False

    def readable(self, given: Any, dir_fd: int | None = None, *, follow: bool = True) -> Any:
        """Where to read ``given``: itself, or the path of what was written in its stead."""
        self.sync()
        name = os.fspath(given)
        if dir_fd is None and name in self.untouched:
            return given
        text = self.text(name, dir_fd)
        path = self.canonical(text)
        end = self.final(path) if follow else path
        place = self.place(end)
        # A link on the way may be one that the target made, which only the tree has.
        if self.inside or dir_fd is not None or place != text:
            return place
        if not follow or path.rpartition("/")[0] in self.folders:
            return given
        if len(self.untouched) >= MOST_KNOWN:
            self.untouched.clear()
        self.untouched.add(name)
        return given

    def exists(self, path: str) -> bool:
        """Whether the target would see something there."""
        return mode_of(self.place(path)) is not None

    def names(self, path: str) -> list[str]:
        """What a folder holds for the target."""
        found: dict[str, None] = {}
        if path in self.folders and is_folder(self.tree + path):
            found = dict.fromkeys(posix.listdir(self.tree + path))
        else:
            posix.listdir(self.place(path))
        if not self.is_gone(path) and is_folder(path):
            base = path.rstrip("/")
            real = (n for n in posix.listdir(path) if f"{base}/{n}" not in self.gone)
            found.update(dict.fromkeys(real))
        return list(found)

    # --- writing -------------------------------------------------------------------------------

    def passes(self, path: str) -> bool:
        """Whether a path is written as ever."""
        return self.areas.passes(path)

    def upper(self, path: str) -> str:
        """Where to create ``path``; its folder is made in the tree where the target has it."""
        folder = path.rpartition("/")[0] or "/"
        place = self.place(folder)
        if is_folder(place):
            if place == folder and not posix.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            self.make_folders(folder)
        return self.tree + path

    def make_folders(self, folder: str) -> None:
        """Have a folder, and those above it, in the tree."""
        if folder in self.folders and is_folder(self.tree + folder):
            return
        made = ""
        self.note("d", made)
        for part in filter(None, folder.split("/")):
            made = f"{made}/{part}"
            with contextlib.suppress(FileExistsError):
                posix.mkdir(self.tree + made)
            self.note("d", made)

    def copy_up(self, path: str) -> str:
        """The copy in the tree that may be changed, made where there is none yet."""
        source = self.place(path)
        if self.in_tree(source):
            return source
        kind = mode_of(source)
        if kind is not None and not stat.S_ISDIR(kind) and not posix.access(source, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if kind is not None and stat.S_ISDIR(kind):
            self.make_folders(path)
        elif kind is not None:
            copy(source, self.upper(path))
            self.note("w", path)
        return self.tree + path

    def opened(self, canonical: str, flags: int) -> str:
        """The physical path to open with ``flags``, where a copy is made first if need be."""
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        path = canonical if exclusive or flags & os.O_NOFOLLOW else self.final(canonical)
        if not flags & WRITING or self.passes(path):
            return self.place(path)
        place = self.place(path)
        kind = mode_of(place)
        if kind is None:
            if not flags & os.O_CREAT:
                return place
            place = self.upper(path)
            if is_folder(place.rpartition("/")[0]):
                self.note("w", path)
            return place
        if not stat.S_ISREG(kind) or exclusive:
            return place
        if not flags & os.O_TRUNC or self.in_tree(place):
            return self.copy_up(path)
        if not posix.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        place = self.upper(path)
        posix.close(posix.open(place, os.O_WRONLY | os.O_CREAT, stat.S_IMODE(kind)))
        self.note("w", path)
        return place

    def hide(self, path: str) -> None:
        """Hide the real file or folder from the target."""
        if mode_of(path) is not None:
            self.note("g", path)

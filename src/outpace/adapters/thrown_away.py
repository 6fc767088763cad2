"""A run of the target whose results are thrown away: what it writes, kept from the user's files.

Three things together: the target's calls are redirected (`outpace.seams.writes`), the kernel
refuses what could not be (`outpace.adapters.guard`), and where there is no such kernel the working
directory is looked over before and after. Trackers that would show the run on a server are told to
stay off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from outpace.adapters.guard import guarded, version
from outpace.errors import SessionError
from outpace.seams.writes import written_in
from outpace.seams.writes.areas import areas

T = TypeVar("T")

TRACKERS_OFF = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug", "CLEARML_OFFLINE_MODE": "1"}
IN_PYTHON = {"HF_HUB_DISABLE_XET": "1"}
"""has Hugging Face's files be written by Python, which is handed the place of the bytes, and not by Rust"""
MOST_FILES = 20_000
MOST_SECONDS = 0.5
NOT_LOOKED_AT = (".git", ".outpace", "__pycache__", ".venv", "node_modules")
NAMED = 5


class Seen(NamedTuple):
    """Files with their time and size; ``whole``: all that there are."""

    files: dict[str, tuple[int, int]]
    whole: bool


class ThrownAway:
    """The scratch folder of one run. ``written``, ``removed``, ``changed``: known after `end`.

    ``changed`` are files of the user's that were written to all the same; without a guarding kernel
    only.
    """

    def __init__(
        self, cwd: Path, session: Path, allow: list[Path], environ: Mapping[str, str]
    ) -> None:
        self.cwd = cwd.resolve()
        self.scratch = session.resolve() / "scratch"
        if self.scratch.parent == self.cwd or self.scratch.parent in self.cwd.parents:
            raise SessionError(
                f"the session folder {session} holds the folder that the target runs in",
                "name another with --session",
            )
        self.written: list[str] = []
        self.removed: list[str] = []
        self.changed: list[str] = []
        self.ended = False
        self.made: list[str] = []
        self.environ = environ
        self.allow = [str(self.scratch), *map(str, allow)]
        self.areas = areas(self.allow, str(self.cwd), environ)
        # Beneath the temporary folder, which must stay writable, the kernel can't keep a folder.
        in_temporary = any(self.cwd.is_relative_to(t) for t in self.areas.temporary)
        self.can_guard = version() > 0
        self.before = None if self.can_guard and not in_temporary else self._look()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def variables(self) -> dict[str, str]:
        """What the target's process needs to know."""
        others = TRACKERS_OFF | IN_PYTHON
        found = {k: v for k, v in others.items() if k not in self.environ}
        found["OUTPACE_SHADOW"] = "\n".join(self.allow)
        if self.can_guard:
            found["OUTPACE_GUARDED"] = "1"
        return found

    def guarded(self, action: Callable[[], T]) -> T:
        """Start the target with the kernel's guard where there is one."""
        if not self.can_guard:
            return action()
        self.scratch.mkdir(parents=True, exist_ok=True)
        # The kernel opens folders that are there: none else could be made in a home that it keeps.
        self.made = [made for folder in self.areas.caches for made in make_folders(folder)]
        return guarded([*self.areas.always, *self.areas.temporary], action)

    def end(self) -> None:
        """Note what was written and throw it away."""
        if self.ended:
            return
        self.ended = True
        self.written, self.removed = written_in(self.scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in reversed(self.made):
            with contextlib.suppress(OSError):  # it was used
                os.rmdir(folder)
        if self.before is not None:
            self.changed = changes(self.before, self._look())

    def _look(self) -> Seen:
        return look(self.cwd, apart=[os.path.realpath(path) for path in self.allow])

    def follow(self, earlier: ThrownAway) -> None:
        """Tell of the files of an earlier run of the same target as well, each once."""
        for name in ("written", "removed", "changed"):
            setattr(self, name, sorted({*getattr(earlier, name), *getattr(self, name)}))

    @property
    def notes(self) -> list[str]:
        """What became of the files, in sentences."""
        found = []
        if self.written:
            found.append(
                f"written to a scratch folder and thrown away: {self._named(self.written)}"
            )
        if self.removed:
            found.append(f"removed by the target and kept by us: {self._named(self.removed)}")
        if self.changed:
            found.append(
                f"could not be kept from being changed while the target ran: "
                f"{self._named(self.changed)}"
            )
        return found

    def _named(self, paths: list[str]) -> str:
        shown = [os.path.relpath(p, self.cwd) if _beneath(p, self.cwd) else p for p in paths]
        more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
        return ", ".join(shown[:NAMED]) + more


def make_folders(path: str) -> list[str]:
    """Have a folder; those that were made for it, from the top. One that can't be had is left."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    made = []
    with contextlib.suppress(OSError):
        for folder in reversed(missing):
            os.mkdir(folder, 0o700)
            made.append(folder)
    return made


def _beneath(path: str, folder: Path) -> bool:
    return path.startswith(f"{folder}/")


def look(folder: Path, apart: Collection[str] = ()) -> Seen:
    """Time and size of the files in a folder; of the first ones where there are many.

    Folders named in ``apart`` are left out, and files that this process's own output goes to.
    """
    found: dict[str, tuple[int, int]] = {}
    until = time.monotonic() + MOST_SECONDS
    ours = _own_output()
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in NOT_LOOKED_AT and os.path.join(here, name) not in apart
        )
        for name in sorted(files):
            path = os.path.join(here, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if _identity(status) not in ours:
                    found[path] = (status.st_mtime_ns, status.st_size)
        if len(found) >= MOST_FILES or time.monotonic() > until:
            return Seen(found, whole=False)
    return Seen(found, whole=True)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _own_output() -> set[tuple[int, int]]:
    found = set()
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.add(_identity(os.fstat(number)))
    return found


def changes(before: Seen, after: Seen) -> list[str]:
    """Files that differ; new and missing ones too where both looks saw everything."""
    one, other = before.files, after.files
    found = [p for p in other if p in one and other[p] != one[p]]
    if before.whole and after.whole:
        found += one.keys() ^ other.keys()
    return sorted(found)

"""Shadow writes: a run that is thrown away leaves the user's files as they are.

A diagnosing or tuning run must not overwrite, create, rename or delete what is the user's. After
`install` what the target writes goes to a scratch folder, and what it reads of that comes from
there: it sees its own checkpoints, logs and folders as if they had been written, deleted and
renamed where it said. A file that is appended to or changed in place is copied first.

Covered: ``open``, ``io.open`` and the file calls of ``os``, and so what is built on them (pathlib,
shutil, tempfile, logging, csv, json, pickle, zipfile, numpy, Pillow, pandas); and of what opens
files in C: ``torch.save``/``load``, ``torch.jit``, sqlite3, safetensors, tokenizers, sentencepiece, h5py,
polars, OpenCV's images, soundfile, and of pyarrow Parquet, CSV, Feather, ``OSFile`` and ``memory_map``.
Processes that multiprocessing starts (DataLoader workers) share it, forked or not; ranks of one run share one
scratch folder.

Not redirected: what other C libraries, and other programs that the target starts, write themselves (but
for ``mkdir`` and ``rm``, see `outpace.seams.writes.commands`);
``io.FileIO`` called by its name; modules that the target writes and then imports. The kernel refuses such
writes where it can (`outpace.adapters.guard`); where it can't, they are found afterwards and told.

Passing through on purpose: see `outpace.seams.writes.areas`. Not imitated: hard links to the user's
files become copies. A file over 8 GiB is not copied: changing it in place fails
(``numpy.memmap`` in its default mode ``r+`` takes large files as ``c``: changes stay in memory).

While nothing was written, reading costs one look at a shared number (about 0.4 us an ``open``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from outpace.seams.writes import calls, commands, libraries
from outpace.seams.writes.areas import Areas, areas
from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.physical import mode_of, read_journal

Name = str | os.PathLike[str]

_live: Overlay | None = None


def install(scratch: Name, allow: Sequence[Name] = ()) -> Callable[[], None]:
    """Redirect this process's writes into ``scratch``; the function that ends it.

    ``allow``: further folders to write to as ever. A second process that names the same scratch
    folder joins it.
    """
    folder = os.path.realpath(scratch)
    passing = [folder, *(os.fspath(path) for path in allow)]
    return _installed(folder, areas(passing, os.getcwd(), os.environ))


def join(scratch: str, found: Sequence[tuple[str, ...]]) -> None:
    """The same in a process that the target's has started anew, with the areas of that one."""
    if _live is None:
        _installed(scratch, Areas(*found))


def _installed(folder: str, found: Areas) -> Callable[[], None]:
    global _live
    if _live is not None:
        raise RuntimeError("writes are redirected already")
    _live = overlay = Overlay(folder, found)
    undo_libraries = libraries.install(overlay)
    undo_calls = calls.install(overlay)
    undo_commands = commands.install()

    def undo() -> None:
        global _live
        undo_commands()
        undo_calls()
        undo_libraries()
        _live = None

    return undo


def written_in(scratch: Name) -> tuple[list[str], list[str]]:
    """Files that were written in a run, by any of its processes, and are still there; and files of the user's
    that it removed.
    """
    folder = os.path.realpath(scratch)
    entries = list(dict.fromkeys(read_journal(f"{folder}/journal")))
    there = [p for kind, p in entries if kind == "w" and mode_of(f"{folder}/tree{p}") is not None]
    removed = [p for kind, p in entries if kind == "g" and mode_of(f"{folder}/tree{p}") is None]
    return there, removed

"""What the target does to folders and names, done in the scratch folder.

Each function takes canonical virtual paths that do not pass (`Overlay.passes`), and raises what the
system call would raise. The user's files are read at most.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posix
import stat
from collections.abc import Callable
from typing import Any

from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.physical import copy, is_link, mode_of


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _is_folder(overlay: Overlay, path: str) -> bool:
    kind = mode_of(overlay.place(path))
    return kind is not None and stat.S_ISDIR(kind)


def make_folder(overlay: Overlay, path: str, mode: int = 0o777) -> None:
    """``mkdir``."""
    if overlay.exists(path):
        raise _error(errno.EEXIST, path)
    posix.mkdir(overlay.upper(path), mode)
    overlay.note("d", path)


def make_node(overlay: Overlay, path: str, make: Callable[..., None], *args: Any) -> None:
    """``mkfifo`` and ``mknod``."""
    if overlay.exists(path):
        raise _error(errno.EEXIST, path)
    make(overlay.upper(path), *args)


def remove_folder(overlay: Overlay, path: str) -> None:
    """``rmdir``."""
    if not overlay.exists(path):
        raise _error(errno.ENOENT, path)
    if not _is_folder(overlay, path):
        raise _error(errno.ENOTDIR, path)
    if overlay.names(path):
        raise _error(errno.ENOTEMPTY, path)
    with contextlib.suppress(FileNotFoundError):
        posix.rmdir(overlay.tree + path)
    overlay.hide(path)


def remove_file(overlay: Overlay, path: str) -> None:
    """``unlink``."""
    if not overlay.exists(path):
        raise _error(errno.ENOENT, path)
    if _is_folder(overlay, path):
        raise _error(errno.EISDIR, path)
    with contextlib.suppress(FileNotFoundError):
        posix.unlink(overlay.tree + path)
    overlay.hide(path)


def rename(overlay: Overlay, source: str, target: str) -> None:
    """``rename`` and ``replace``; either side may be one that passes."""
    if not overlay.exists(source):
        raise _error(errno.ENOENT, source)
    if source == target:
        return
    folder = _is_folder(overlay, source)
    if folder and target.startswith(f"{source}/"):
        within = _is_folder(overlay, target.rpartition("/")[0])
        raise _error(errno.EINVAL if within else errno.ENOENT, source)
    if source.startswith(f"{target}/"):
        raise _error(errno.ENOTEMPTY, target)
    if overlay.passes(target):
        _copy_out(overlay, source, target)
        _forget(overlay, source)
        return
    _check_target(overlay, folder, target)
    place, into = overlay.place(source), overlay.upper(target)
    if folder and mode_of(into) is not None:
        posix.rmdir(into)
    if place == source:
        _take(overlay, source, into)
    else:
        if folder:
            _complete(overlay, source)
        posix.rename(place, into)
        if not overlay.passes(source):
            overlay.hide(source)
    if folder:
        overlay.hide(target)
        _note_folders(overlay, target)
    else:
        if is_link(target):
            overlay.hide(target)
        overlay.note("w", target, again=is_link(into))


def _check_target(overlay: Overlay, folder: bool, target: str) -> None:
    if not overlay.exists(target):
        return
    other = _is_folder(overlay, target)
    if other and not folder:
        raise _error(errno.EISDIR, target)
    if folder and not other:
        raise _error(errno.ENOTDIR, target)
    if other and overlay.names(target):
        raise _error(errno.ENOTEMPTY, target)


def _take(overlay: Overlay, source: str, into: str) -> None:
    """Move a file that passes; copy the user's own and hide it."""
    if mode_of(into) is not None:
        posix.unlink(into)
    if overlay.passes(source):
        try:
            posix.rename(source, into)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy(source, into)
            _delete(source)
        return
    if _is_folder(overlay, source):
        _complete(overlay, source)
        posix.rename(overlay.tree + source, into)
    else:
        copy(source, into)
    overlay.hide(source)


def _copy_out(overlay: Overlay, source: str, target: str) -> None:
    """Copy what the target sees to where it may write."""
    if overlay.passes(source) or not _is_folder(overlay, source):
        copy(overlay.place(source), target)
        return
    with contextlib.suppress(FileExistsError):
        posix.mkdir(target)
    for name in overlay.names(source):
        _copy_out(overlay, f"{source}/{name}", f"{target}/{name}")


def _complete(overlay: Overlay, folder: str) -> None:
    """Have all of a folder in the tree."""
    overlay.make_folders(folder)
    for name in overlay.names(folder):
        path = f"{folder}/{name}"
        if _is_folder(overlay, path):
            _complete(overlay, path)
        else:
            overlay.copy_up(path)


def _note_folders(overlay: Overlay, folder: str) -> None:
    overlay.note("d", folder)
    for name in posix.listdir(overlay.tree + folder):
        path = f"{folder}/{name}"
        kind = mode_of(overlay.tree + path)
        if kind is not None and stat.S_ISDIR(kind):
            _note_folders(overlay, path)
        else:
            overlay.note("w", path)


def _forget(overlay: Overlay, path: str) -> None:
    if mode_of(overlay.tree + path) is not None:
        _delete(overlay.tree + path)
    overlay.hide(path)


def _delete(path: str) -> None:
    kind = mode_of(path)
    if kind is not None and stat.S_ISDIR(kind):
        for name in posix.listdir(path):
            _delete(f"{path}/{name}")
        posix.rmdir(path)
    else:
        posix.unlink(path)


def hard_link(overlay: Overlay, source: str, target: str) -> None:
    """``link``; to a file of the user's it is a copy."""
    if not overlay.exists(source):
        raise _error(errno.ENOENT, source)
    if overlay.exists(target):
        raise _error(errno.EEXIST, target)
    if _is_folder(overlay, source):
        raise _error(errno.EPERM, source)
    place, into = overlay.place(source), overlay.upper(target)
    if overlay.in_tree(place):
        posix.link(place, into)
    else:
        copy(place, into)
    overlay.note("w", target)


def symbolic_link(overlay: Overlay, text: Any, target: str) -> None:
    """``symlink``."""
    if overlay.exists(target):
        raise _error(errno.EEXIST, target)
    posix.symlink(text, overlay.upper(target))
    overlay.note("w", target, again=True)

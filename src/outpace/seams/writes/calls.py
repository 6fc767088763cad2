"""The calls of ``os``, ``io`` and ``builtins`` that a thrown-away run has replaced.

A call that only reads goes straight to the original while nothing was written. A file object keeps
the name that the target gave, and an error names the path that the target gave.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import posix
import sys
from collections.abc import Callable
from typing import Any

from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.writes import changing
from outpace.seams.writes.listing import Entries
from outpace.seams.writes.opening import Call, as_given, descriptor_open, file_open
from outpace.seams.writes.overlay import Overlay

READING = ("stat", "lstat", "access", "readlink", "statvfs", "getxattr", "listxattr", "pathconf")
CHANGING = ("chmod", "chown", "lchown", "utime", "truncate", "setxattr", "removexattr")
NOT_FOLLOWED = ("lstat", "readlink", "lchown")


def calls_for(overlay: Overlay) -> dict[tuple[Any, str], Call]:
    """(module, name) and the call to put there."""
    table: dict[tuple[Any, str], Call] = {
        (os, "open"): descriptor_open(overlay),
        (builtins, "open"): file_open(overlay),
        (io, "open"): file_open(overlay),
    }
    for name in READING:
        table[os, name] = _reading(overlay, name)
    for name in CHANGING:
        table[os, name] = _changing(overlay, name)
    for name, make in MAKERS.items():
        table[os, name] = make(overlay, name)
    return {key: call for key, call in table.items() if hasattr(*key)}


def _reading(overlay: Overlay, name: str) -> Call:
    real: Call | None = getattr(posix, name, None)
    if real is None:
        return _missing
    size, followed = overlay.size, name not in NOT_FOLLOWED

    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not size[0] or isinstance(path, int):
            return real(path, *args, **kwargs)
        follow = followed and kwargs.get("follow_symlinks", True)
        dir_fd = kwargs.pop("dir_fd", None)
        place = overlay.readable(path, dir_fd, follow=follow)
        try:
            return real(place, *args, **kwargs)
        except OSError as error:
            as_given(error, path)
            raise

    return functools.wraps(real)(call)


def _missing(*args: Any, **kwargs: Any) -> Any:
    """Stands for a call that this system does not have; it is put nowhere."""


def _changing(overlay: Overlay, name: str) -> Call:
    real: Call | None = getattr(posix, name, None)
    if real is None:
        return _missing

    def change(path: str, args: Any, kwargs: Any) -> Any:
        if name not in NOT_FOLLOWED and kwargs.get("follow_symlinks", True):
            path = overlay.final(path)
        return real(path if overlay.passes(path) else overlay.copy_up(path), *args, **kwargs)

    return _on_path(overlay, real, change)


def _on_path(overlay: Overlay, real: Call, action: Call) -> Call:
    """A call whose first argument is a path that is to be changed."""

    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, int):
            return real(path, *args, **kwargs)
        overlay.sync()
        canonical = overlay.canonical(overlay.text(path, kwargs.pop("dir_fd", None)))
        try:
            return action(canonical, args, kwargs)
        except OSError as error:
            as_given(error, path)
            raise

    return functools.wraps(real)(call)


def _making(overlay: Overlay, name: str) -> Call:
    """``mkdir``, ``rmdir``, ``unlink``, ``remove``, ``mkfifo``, ``mknod``."""
    real: Call = getattr(posix, name)
    in_scratch: dict[str, Call] = {
        "mkdir": changing.make_folder,
        "rmdir": changing.remove_folder,
        "unlink": changing.remove_file,
        "remove": changing.remove_file,
    }

    def change(path: str, args: Any, kwargs: Any) -> Any:
        if overlay.passes(path):
            return real(path, *args, **kwargs)
        if name in in_scratch:
            return in_scratch[name](overlay, path, *args, **kwargs)
        return changing.make_node(overlay, path, functools.partial(real, **kwargs), *args)

    return _on_path(overlay, real, change)


def _on_two(overlay: Overlay, name: str) -> Call:
    """``rename``, ``replace`` and ``link``."""
    real: Call = getattr(posix, name)
    action = changing.hard_link if name == "link" else changing.rename

    @functools.wraps(real)
    def call(
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        **kwargs: Any,
    ) -> None:
        overlay.sync()
        source = overlay.canonical(overlay.text(src, src_dir_fd))
        target = overlay.canonical(overlay.text(dst, dst_dir_fd))
        try:
            if overlay.passes(source) and overlay.passes(target):
                real(source, target, **kwargs)
            elif name == "link" and overlay.passes(target):
                real(overlay.place(source), target, **kwargs)
            else:
                action(overlay, source, target)
        except OSError as error:
            as_given(error, src, dst)
            raise

    return call


def _symlink(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.symlink)
    def symlink(
        src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        overlay.sync()
        target = overlay.canonical(overlay.text(dst, dir_fd))
        try:
            if overlay.passes(target):
                posix.symlink(src, target)
            else:
                changing.symbolic_link(overlay, src, target)
        except OSError as error:
            as_given(error, src, dst)
            raise

    return symlink


def _listdir(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.listdir)
    def listdir(path: Any = None) -> list[Any]:
        if not overlay.size[0]:
            return posix.listdir(path)
        try:
            with Entries(overlay, path) as entries:
                return [entry.name for entry in entries]
        except OSError as error:
            as_given(error, path)
            raise

    return listdir


def _scandir(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.scandir)
    def scandir(path: Any = None) -> Any:
        if not overlay.size[0]:
            return posix.scandir(path)
        try:
            return Entries(overlay, path)
        except OSError as error:
            as_given(error, path)
            raise

    return scandir


def _chdir(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.chdir)
    def chdir(path: Any) -> None:
        try:
            if isinstance(path, int):
                posix.chdir(path)
            else:
                posix.chdir(overlay.readable(path))
        except OSError as error:
            as_given(error, path)
            raise
        overlay.inside = posix.getcwd() != overlay.cwd()
        overlay.forget()

    return chdir


def _getcwd(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.getcwd)
    def getcwd() -> str:
        return overlay.cwd() if overlay.inside else posix.getcwd()

    return getcwd


def _getcwdb(overlay: Overlay, name: str) -> Call:
    @functools.wraps(posix.getcwdb)
    def getcwdb() -> bytes:
        return os.fsencode(overlay.cwd())

    return getcwdb


MAKERS: dict[str, Callable[[Overlay, str], Call]] = {
    **dict.fromkeys(("mkdir", "rmdir", "unlink", "remove", "mkfifo", "mknod"), _making),
    **dict.fromkeys(("rename", "replace", "link"), _on_two),
    "symlink": _symlink,
    "listdir": _listdir,
    "scandir": _scandir,
    "chdir": _chdir,
    "getcwd": _getcwd,
    "getcwdb": _getcwdb,
}


def install(overlay: Overlay) -> Callable[[], None]:
    """Put the calls in; the function that takes them out again."""
    replaced = Replaced()
    supported = [
        getattr(os, n) for n in dir(os) if n.startswith("supports_") and n != "supports_dir_fd"
    ]
    for (module, name), call in calls_for(overlay).items():
        original = getattr(module, name)
        replaced.put(module, name, functools.partial(_dressed, module, name, call))
        for names in supported:
            if isinstance(names, set) and original in names:
                names.add(getattr(module, name))
    _walk_by_path(False)
    _glob_by(os)

    def undo() -> None:
        replaced.put_all_back()
        _walk_by_path(True)
        _glob_by(posix)

    return undo


def _dressed(module: Any, name: str, call: Call, _: Any) -> Any:
    return in_place_of(module, name)(call)


def _glob_by(calls: Any) -> None:
    """Paths are to be globbed by these: since 3.13 `glob` takes its own as it is imported."""
    globber = getattr(sys.modules.get("glob"), "_StringGlobber", None)
    for name in ("scandir", "lstat"):
        if name in getattr(globber, "__dict__", {}):
            setattr(globber, name, staticmethod(getattr(calls, name)))


def _walk_by_path(by_descriptor: bool) -> None:
    """``shutil.rmtree`` is to go by paths, also where shutil was imported before."""
    shutil = sys.modules.get("shutil")
    if shutil is not None and hasattr(shutil, "_use_fd_functions"):
        vars(shutil)["_use_fd_functions"] = by_descriptor

"""Programs that a target starts: they know nothing of the scratch folder.

What a script mostly starts for its files is done for it: ``mkdir -p`` and ``rm -rf``. A file that was written
in the run and is named to a program is read there, and a program may start in a folder of the run. All other
writing of programs is refused, where the kernel guards the user's files.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.writes.overlay import Overlay

OF_SHELLS = set("|&;<>()$`*?[]{}~!\n")
"""what a shell looks at in a word"""


def install() -> Callable[[], None]:
    """Stand before ``os.system``; the function that ends it."""
    replaced = Replaced()
    replaced.put(os, "system", _system)
    return replaced.put_all_back


def _system(original: Any) -> Any:
    @in_place_of(os, "system")
    def system(command: Any) -> int:
        if isinstance(command, str) and done(plain_words(command)):
            return 0
        return int(original(command))

    return system


def popen(overlay: Overlay, original: Any) -> Any:
    """``subprocess.Popen.__init__``."""

    @functools.wraps(original)
    def __init__(self: Any, args: Any, *more: Any, **kwargs: Any) -> None:
        folder, shell = kwargs.get("cwd"), kwargs.get("shell")
        words: list[str] = []
        if shell and isinstance(args, str):
            words = plain_words(args)
        elif not shell and isinstance(args, list | tuple):
            plain = all(isinstance(each, str | os.PathLike) for each in args)
            words = [os.fspath(each) for each in args] if plain else []
        if kwargs.get("executable") is None and not more and done(words, folder):
            args, kwargs = ["true"], {**kwargs, "shell": False}
        elif overlay.size[0] and not shell and isinstance(args, list | tuple):
            args = [*args[:1], *(_file(overlay, each, folder) for each in args[1:])]
        if folder is not None and overlay.size[0]:
            kwargs["cwd"] = overlay.readable(folder)
        original(self, args, *more, **kwargs)

    return __init__


def _file(overlay: Overlay, word: Any, folder: Any) -> Any:
    """Where a file that was written in the run lies, if the word names one to a program in ``folder``."""
    if not isinstance(word, str | os.PathLike) or not os.fspath(word):
        return word
    try:
        place = str(overlay.readable(os.path.join(folder or "", word)))
        written = overlay.in_tree(place)
        return place if written and os.path.isfile(place) else word
    except (OSError, ValueError, TypeError):
        return word


def plain_words(command: str) -> list[str]:
    """The words of a command that needs no shell; none of others."""
    if OF_SHELLS & set(command):
        return []
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return []


def done(words: list[str], folder: Any = None) -> bool:
    """Whether it was one of those that are done here, in a folder. What would fail is left to the program to
    tell of.
    """
    options = {letter for word in words[1:] if _is_option(word) for letter in word[1:]}
    within = os.fsdecode(folder) if folder is not None else ""
    paths = [os.path.join(within, word) for word in words[1:] if not _is_option(word)]
    if not paths or words[0] not in ("mkdir", "rm"):
        return False
    try:
        if words[0] == "mkdir" and options <= {"p", "v"}:
            return _made(paths, parents="p" in options)
        if words[0] == "rm" and options <= {"r", "R", "f", "v"}:
            return _removed(paths, folders=bool(options & {"r", "R"}), anyway="f" in options)
    except OSError:
        pass
    return False


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _made(folders: list[str], *, parents: bool) -> bool:
    if not parents and any(os.path.exists(each) for each in folders):
        return False
    for each in folders:
        os.makedirs(each, exist_ok=True) if parents else os.mkdir(each)
    return True


def _removed(paths: list[str], *, folders: bool, anyway: bool) -> bool:
    there = [each for each in paths if os.path.lexists(each)]
    if len(there) < len(paths) and not anyway:
        return False
    real = [each for each in there if os.path.isdir(each) and not os.path.islink(each)]
    if real and not folders:
        return False
    import shutil

    for each in there:
        shutil.rmtree(each) if each in real else os.remove(each)
    return True

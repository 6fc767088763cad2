"""What the user wants run, from the words on the command line.

``train.py args``, ``-m pkg.train args``, or a command such as ``torchrun ... train.py``. A command
that is plainly this Python (``python train.py``) is taken as the script itself, so that it runs
under the interpreter that outpace runs under and its diff can be shown.

Limits: an interpreter with options of its own (``python -O train.py``) stays a command, and a
command's script is not looked for inside its words. That a script holds Python is judged by its
name and its first bytes; it is not compiled.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from outpace.errors import TargetError, UsageError
from outpace.records.target import Target

PYTHON = re.compile(r"python(3(\.\d+)?)?$")
PYTHON_SUFFIXES = (".py", ".pyw", ".pyc")
MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*$")
LOOKED_AT = 2048
SIMILAR = 0.6
NAME_IT = "name the script: train.py [args], -m pkg.train, or -- torchrun train.py"


def parse_target(words: Sequence[str], cwd: str | None = None) -> Target:
    """The target that ``words`` name, to be run in ``cwd`` (default: the working folder).

    Raises UsageError where there are no words or ``-m`` names no module, TargetError where what
    they name cannot be run.
    """
    words = list(words)
    folder = os.path.abspath(cwd or os.getcwd())
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError("no target was given", NAME_IT)
    unbuffered = False
    if _is_python(words[0], folder):
        words, unbuffered = _unwrapped(words)
    first, rest = words[0], tuple(words[1:])
    if first == "-m":
        return _module(rest, folder, unbuffered)
    path = Path(folder, first)
    if path.is_file() and _holds_python(path):
        return Target("script", first, rest, folder, unbuffered)
    program = _program(first, path)
    if program is None:
        raise _not_runnable(first, path)
    return Target("command", program, rest, folder)


def _is_python(word: str, folder: str) -> bool:
    """Whether a word calls the interpreter that outpace itself runs under, or just "python"."""
    named = PYTHON.match(os.path.basename(word))
    if not named or named[2] not in (None, f".{sys.version_info.minor}"):
        return False
    if os.sep not in word:
        return not Path(folder, word).is_file()
    # Only the folders' links are followed: an environment's python is itself a link to another.
    return Path(folder, word).parent.resolve() == Path(sys.executable).parent.resolve()


def _unwrapped(words: list[str]) -> tuple[list[str], bool]:
    """``python train.py`` without ``python``, and whether it was ``python -u train.py``; as it is with other
    options.
    """
    unbuffered = words[1:2] == ["-u"]
    rest = words[2 if unbuffered else 1 :]
    if not rest:
        raise UsageError(
            f"{words[0]} was given no script to run", f"name it: {words[0]} train.py [args]"
        )
    runs_script = not rest[0].startswith("-") or rest[0] == "-m"
    return (rest, unbuffered) if runs_script else (words, False)


def _module(rest: tuple[str, ...], folder: str, unbuffered: bool) -> Target:
    if not rest:
        raise UsageError("-m was given no module", "name it: -m pkg.train [args]")
    name = rest[0]
    if not MODULE.match(name):
        as_module = module_of(name)
        hint = f"-m {as_module}" if MODULE.match(as_module) else "-m pkg.train"
        raise TargetError(f"{name!r} is no module's name", hint)
    if _is_missing(name, folder):
        near = difflib.get_close_matches(name, _modules(folder), 1, SIMILAR)
        hint = (
            f"did you mean -m {near[0]}?" if near else f"looked in {folder} and where Python does"
        )
        raise TargetError(f"there is no module {name}", hint)
    return Target("module", name, rest[1:], folder, unbuffered)


def module_of(path: str) -> str:
    """A script's path as the name of a module."""
    return path.removesuffix(".py").strip("./").replace("/", ".")


def _is_missing(name: str, folder: str) -> bool:
    """Whether a module is plainly not there; imports nothing, so packages elsewhere count as there."""
    parts = name.split(".")
    home = Path(folder, parts[0])
    # A folder that is no package comes after packages that are installed.
    if (home / "__init__.py").is_file() or (home.is_dir() and not _is_installed(parts[0])):
        path = Path(folder, *parts)
        return not path.with_name(path.name + ".py").is_file() and not path.is_dir()
    if Path(folder, parts[0] + ".py").is_file():
        return len(parts) > 1
    return _spec(parts[0]) is None


def _is_installed(name: str) -> bool:
    """Whether it is a module, and not just a folder of that name."""
    spec = _spec(name)
    return spec is not None and spec.origin is not None


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _modules(folder: str) -> list[str]:
    """The modules of a folder and of the packages in it."""
    top = Path(folder)
    found = [*top.glob("*.py"), *top.glob("*/*.py")]
    return [".".join(p.relative_to(top).with_suffix("").parts) for p in found]


def _holds_python(path: Path) -> bool:
    """Whether a file can be given to Python: its suffix, or a first line that says so."""
    if path.suffix in PYTHON_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
    except OSError:
        return False
    first_line = start.split(b"\n", 1)[0]
    return first_line.startswith(b"#!") and b"python" in first_line


def _program(word: str, path: Path) -> str | None:
    """What to start for a word that is no Python script: a file, or a program found on PATH.

    Programs of outpace's own environment count too: it may be in use without being activated.
    """
    if path.is_file() and os.access(path, os.X_OK):
        return word if os.sep in word else os.path.join(os.curdir, word)
    if os.sep in word or path.is_file():
        return None
    return word if shutil.which(word) else shutil.which(word, path=os.path.dirname(sys.executable))


def _not_runnable(word: str, path: Path) -> TargetError:
    """Why a word cannot be run, and what may have been meant."""
    if path.is_dir():
        inside = sorted(p.name for p in path.glob("*.py"))
        likely = [name for name in ("train.py", "main.py", "__main__.py") if name in inside]
        found = [*likely, *(name for name in inside if name not in likely)]
        if found:
            return TargetError(
                f"{word} is a folder", f"did you mean {os.path.join(word, found[0])}?"
            )
        return TargetError(f"{word} is a folder", "name the script inside that starts the training")
    if path.is_file():
        return TargetError(
            f"{word} is no Python script, and not executable either",
            "give the script that Python runs; a launcher goes after --: -- torchrun train.py",
        )
    similar = _similar(word, path)
    if similar is not None:
        return TargetError(f"there is no file {word}", f"did you mean {similar}?")
    if not path.parent.is_dir():
        return TargetError(f"there is no file {word}", f"there is no folder {path.parent} either")
    if word.endswith(PYTHON_SUFFIXES) or os.sep in word:
        return TargetError(f"there is no file {word}", f"looked in {path.parent}")
    return TargetError(
        f"there is no file {word}, and no such command on PATH",
        NAME_IT,
    )


def _similar(word: str, path: Path) -> str | None:
    """A script nearby whose name is like the one that is missing, as it would be typed."""
    try:
        scripts = [p.name for p in path.parent.iterdir() if p.suffix == ".py"]
        below = [
            f"{folder.name}/{path.name}"
            for folder in path.parent.iterdir()
            if folder.is_dir() and (folder / path.name).is_file()
        ]
    except OSError:
        return None
    names = difflib.get_close_matches(path.name, scripts, 1, SIMILAR)
    if path.name + ".py" in scripts:
        names = [path.name + ".py"]
    names = names or sorted(below)
    return os.path.join(os.path.dirname(word), names[0]) if names else None

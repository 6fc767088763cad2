"""Files behind an address (http, s3, gs, ...) as a source, read through fsspec.

What fails is tried again, a little later each time: networks do. The list of files is fetched once.
Some packages below (s3fs) try again by themselves: each of our tries may then be several requests.
Honest limit: an index page on the web tells neither sizes nor times of its files.
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import partial
from typing import Any
from urllib.parse import unquote

from outpace.errors import DataError, MissingExtra
from outpace.serve.files import numbered, sample_of
from outpace.serve.parts import listed, told_apart
from outpace.serve.strings import PackedStrings

TRIES = 4
FIRST_PAUSE_S = 0.2
VERSION = (
    "size",
    "ETag",
    "etag",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "mtime",
    "created",
)
"""what file systems call that by which one version of a file is told from another"""
PATIENCE_S = 10.0
"""after which nothing is tried again: packages that do so themselves take their time"""


class Remote:
    """Every file below ``url``, in sorted order, as of a folder: what is hidden is left out, and sub-folders
    are classes.

    Raises DataError for an address that cannot be listed, or holds no file, or tars or tables, which are
    not read from there.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: tuple[int, Any] | None = None
        """process, and its file system: connections do not survive a fork"""
        self.base, found, self.digest = self._listed()
        names = list(found)
        self.names = PackedStrings(names)
        self._paths = self.names if not is_web(url) else PackedStrings(list(found.values()))
        """below the base, as the server has them"""
        self._number = numbered(names)
        self.classes = tuple(self._number) or None

    def _listed(self) -> tuple[str, dict[str, str], str]:
        """The base, of each file below it its name and how the server has it, sorted, and a digest of names
        and of what tells versions apart.
        """
        system, base = self._system()
        found = self._found(system, base)
        base = base.rstrip("/") + "/"
        # An object may stand for a folder, by a name that ends in a stroke.
        paths = [
            path.removeprefix(base)
            for path in found
            if path.startswith(base) and not path.endswith("/")
        ]
        named = {_name(path) if is_web(self.url) else path: path for path in paths}
        names = sorted(name for name in named if name[0] != "." and "/." not in name)
        if not names:
            raise DataError(f"{self.url} holds no files", "an address ends where its files begin")
        kind, data = told_apart(names)
        if kind != "files":
            what = "tars" if kind == "tars" else "tables"
            raise DataError(
                f"{self.url} holds {what}: {listed(data)}",
                f"copy them to a disk first: {what} are not read from an address",
            )
        digest = hashlib.sha256()
        for name in names:
            told = found[base + named[name]]
            version = [str(told[key]) for key in VERSION if key in told]
            digest.update(repr((name, version)).encode())
        return base, {name: named[name] for name in names}, digest.hexdigest()

    def _found(self, system: Any, base: str) -> dict[str, Any]:
        """What is told of each file, by its path: at once where the file system has a way of its own, else
        folder by folder, as fsspec's own way leaves out one that cannot be listed without a word.
        """
        if not _walks(system):
            listed: dict[str, Any] = self._retried(
                partial(system.find, base, detail=True), self.url
            )
            return listed
        found, folders = dict[str, Any](), [base]
        while folders:
            folder = folders.pop()
            where = system.unstrip_protocol(folder)
            for one in self._retried(partial(system.ls, folder, detail=True), where):
                path = one["name"].rstrip("/")
                inside = path.startswith(folder.rstrip("/") + "/")
                if not inside or (is_web(self.url) and _is_query(path)):
                    continue
                if one["type"] != "directory":
                    found[one["name"]] = one
                elif "/." not in path.removeprefix(base.rstrip("/")):
                    folders.append(path)
        return found

    def _system(self) -> tuple[Any, str]:
        """The file system of this process and the path in it."""
        try:
            import fsspec
        except ImportError:
            raise MissingExtra("fsspec", "serve") from None
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                system, base = fsspec.core.url_to_fs(self.url, skip_instance_cache=True)
            except (ImportError, ValueError) as error:
                if isinstance(error, ImportError) and self.url.startswith("s3://"):
                    raise MissingExtra("s3fs", "s3") from error
                raise DataError(f"{self.url} cannot be opened: {error}") from error
            self._opened = (os.getpid(), (system, base))
        found: tuple[Any, str] = self._opened[1]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        system, _ = self._system()
        path = self.base + self._paths[index]
        data = self._retried(lambda: system.cat_file(path), self.where(index))
        return sample_of(self.names[index], data, self._number)

    def where(self, index: int) -> str:
        """A file's address."""
        return f"{self.url.rstrip('/')}/{self._paths[index]}"

    def _retried(self, read: Any, what: str) -> Any:
        pause, begun = FIRST_PAUSE_S, time.monotonic()
        for number in range(1, TRIES + 1):
            try:
                return read()
            except FileNotFoundError as error:
                raise DataError(f"{what} is not there") from error
            except PermissionError as error:
                raise DataError(f"{what} may not be read: {error}") from error
            except Exception as error:
                if number == TRIES or time.monotonic() - begun > PATIENCE_S:
                    tries = "1 try" if number == 1 else f"{number} tries"
                    raise DataError(
                        f"{what} could not be read in {tries}: {type(error).__name__}: {error}"
                    ) from error
                time.sleep(pause)
                pause *= 2
        raise AssertionError


def is_remote(spec: str) -> bool:
    """Whether a source's name is an address."""
    return "://" in spec


def is_web(url: str) -> bool:
    """Whether names below an address are written as of the web: ``%20`` for a space."""
    return url.startswith(("http://", "https://"))


def _walks(system: Any) -> bool:
    """Whether its way to list all that is below a folder is fsspec's own."""
    find = getattr(type(system), "_find", None) or type(system).find
    return find.__module__ in ("fsspec.asyn", "fsspec.spec")


def _is_query(path: str) -> bool:
    """Whether it is no file but a link that an index page has to itself, such as to be sorted otherwise."""
    return "?" in path or "#" in path


def _name(path: str) -> str:
    """A file's own name."""
    return unquote(path, errors="surrogateescape")

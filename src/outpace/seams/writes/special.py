"""Calls of libraries that take more than a path: what is done with it depends on a mode, or on the file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from outpace.seams.writes.commands import popen
from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.places import Use, own_file, place_for, written

LARGE, LARGE_DATABASE = 64 << 20, 1 << 30
"""bytes above which a file that may be changed in place is not copied for a library to read"""


def _connect(overlay: Overlay, connect: Any) -> Any:
    """``sqlite3.connect``: a very large database, and one that may not be changed, is opened for reading
    only; others are copied.
    """

    @functools.wraps(connect)
    def redirected(database: Any, *args: Any, **kwargs: Any) -> Any:
        text = os.fspath(database) if isinstance(database, os.PathLike) else database
        if text in ("", b"", ":memory:") or not isinstance(text, str | bytes):
            return connect(database, *args, **kwargs)
        address = os.fsdecode(text)
        if kwargs.get("uri") and address.startswith("file:"):
            return connect(_address(overlay, address), *args, **kwargs)
        if _is_only_read(overlay, text):
            from urllib.parse import quote

            return connect(f"file:{quote(address)}?mode=ro", *args, **{**kwargs, "uri": True})
        return connect(place_for(overlay, text, "change"), *args, **kwargs)

    return redirected


def _address(overlay: Overlay, address: str) -> str:
    """That of a database's place."""
    from urllib.parse import parse_qs, quote, unquote

    rest, mark, options = address.removeprefix("file:").partition("?")
    path, given = unquote(rest).removeprefix("//localhost"), parse_qs(options)
    if path in ("", ":memory:") or "memory" in given.get("mode", []):
        return address
    kept = "ro" in given.get("mode", []) or "immutable" in given
    if not kept and _is_only_read(overlay, path):
        return f"file:{quote(path)}?mode=ro"
    place = place_for(overlay, path, "read" if kept else "change")
    return f"file:{quote(os.fspath(place))}{mark}{options}"


def _memmap(overlay: Overlay, new: Any) -> Any:
    """``numpy.memmap.__new__``: its default mode changes the file in place."""

    @functools.wraps(new)
    def redirected(
        subtype: Any,
        filename: Any,
        dtype: Any = "uint8",
        mode: str = "r+",
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if (
            mode in ("r+", "readwrite")
            and isinstance(filename, str | os.PathLike)
            and _is_large(overlay, filename)
        ):
            mode = "c"
        return new(subtype, filename, dtype, mode, *args, **kwargs)

    return redirected


def _h5_file(overlay: Overlay, init: Any) -> Any:
    """``h5py.File.__init__``, by its mode."""

    @functools.wraps(init)
    def redirected(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        use: Use = "read" if mode == "r" else "write" if mode in ("w", "w-", "x") else "change"
        return init(self, place_for(overlay, name, use), mode, *args, **kwargs)

    return redirected


def _os_file(overlay: Overlay, kind: Any) -> Any:
    """``pyarrow.OSFile``, by its mode."""

    @functools.wraps(kind)
    def redirected(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        use: Use = "read" if mode in ("r", "rb") else "change" if "a" in mode else "write"
        return kind(place_for(overlay, path, use), mode, *args, **kwargs)

    return redirected


def _sound_file(overlay: Overlay, init: Any) -> Any:
    """``soundfile.SoundFile.__init__``, by its mode."""

    @functools.wraps(init)
    def redirected(self: Any, file: Any, mode: str | None = "r", *args: Any, **kwargs: Any) -> Any:
        use: Use = "change" if "+" in (mode or "r") else "read" if "r" in (mode or "r") else "write"
        return init(self, place_for(overlay, file, use), mode, *args, **kwargs)

    return redirected


def _train_pieces(overlay: Overlay, train: Any) -> Any:
    """``sentencepiece.SentencePieceTrainer._Train``: files by a common beginning of their names."""

    @functools.wraps(train)
    def redirected(arg: Any = None, **kwargs: Any) -> Any:
        if isinstance(arg, str):
            words = (word.partition("=") for word in arg.split())
            kwargs = {name.lstrip("-"): value for name, _, value in words} | kwargs
        given = kwargs.get("input")
        paths = given.split(",") if isinstance(given, str) else given
        kwargs |= {"input": place_for(overlay, paths, "read")} if paths else {}
        if "model_prefix" not in kwargs or "model_writer" in kwargs:
            return train(**kwargs)
        folder, name = os.path.split(os.fspath(kwargs["model_prefix"]))
        prefix = os.path.join(place_for(overlay, folder or ".", "folder"), name)
        train(**{**kwargs, "model_prefix": prefix})
        for ending in (".model", ".vocab"):
            written(overlay, prefix + ending)
        return None

    return redirected


def _from_file(overlay: Overlay, call: Any) -> Any:
    """``torch.from_file``: only a map that is shared changes the file."""

    @functools.wraps(call)
    def redirected(filename: Any, shared: bool | None = None, *args: Any, **kwargs: Any) -> Any:
        place = place_for(overlay, filename, "change" if shared else "read")
        return call(place, shared, *args, **kwargs)

    return redirected


def _lmdb_open(overlay: Overlay, call: Any) -> Any:
    """``lmdb.open``: who only reads writes a file of locks all the same. A large database of the user's is
    opened for reading only, one that the target makes lies in the tree.
    """

    @functools.wraps(call)
    def redirected(path: Any, *args: Any, **kwargs: Any) -> Any:
        folder = overlay.final(overlay.canonical(overlay.text(path)))
        data = f"{folder}/data.mdb" if kwargs.get("subdir", True) else folder
        if overlay.passes(folder):
            return call(path, *args, **kwargs)
        if own_file(overlay, data) and (kwargs.get("readonly") or _is_large(overlay, data)):
            return call(path, *args, **{**kwargs, "readonly": True, "lock": False})
        if data != folder:
            os.makedirs(folder, exist_ok=True)
        place = place_for(overlay, data, "change")
        return call(os.path.dirname(place) if data != folder else place, *args, **kwargs)

    return redirected


def _preparation(overlay: Overlay, get: Any) -> Any:
    """``multiprocessing.spawn.get_preparation_data``: what a process that is not forked reads first."""

    @functools.wraps(get)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        found = get(*args, **kwargs)
        of_a_server = args[:1] == ("ignore",)  # of a forkserver: it would run the script's lines
        if of_a_server:
            found.pop("main_path", None)
        found["outpace"] = _Joining(overlay)
        return found

    return redirected


class _Joining:
    """Is unpickled as nothing, and has the process share the scratch folder; where it cannot, it goes on."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def __reduce__(self) -> Any:
        scratch, found = os.path.dirname(self.overlay.tree), tuple(self.overlay.areas)
        lines = f"from outpace.seams.writes import join\n    join({scratch!r}, {found!r})"
        return exec, (f"try:\n    {lines}\nexcept Exception:\n    pass",)


def _is_large(overlay: Overlay, path: Any) -> bool:
    place = own_file(overlay, path)
    return place is not None and os.stat(place).st_size > LARGE


def _is_only_read(overlay: Overlay, path: Any) -> bool:
    place = own_file(overlay, path)
    return place is not None and (
        os.stat(place).st_size > LARGE_DATABASE or not os.access(place, os.W_OK)
    )


SPECIAL: dict[tuple[str, str], Callable[[Overlay, Any], Any]] = {
    ("sqlite3", "connect"): _connect,
    ("sqlite3.dbapi2", "connect"): _connect,
    ("numpy", "memmap.__new__"): _memmap,
    ("h5py", "File.__init__"): _h5_file,
    ("pyarrow", "OSFile"): _os_file,
    ("soundfile", "SoundFile.__init__"): _sound_file,
    ("sentencepiece", "SentencePieceTrainer._Train"): _train_pieces,
    ("tables.file", "File.__init__"): _h5_file,
    ("torch", "from_file"): _from_file,
    ("lmdb", "open"): _lmdb_open,
    ("subprocess", "Popen.__init__"): popen,
    ("multiprocessing.spawn", "get_preparation_data"): _preparation,
}

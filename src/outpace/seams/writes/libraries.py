"""Libraries that open files in C: their calls are handed the place of the bytes.

A new one is a row of `ROWS`: module, call, position and name of the path, and what is done with it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ClassMethodDescriptorType, ModuleType
from typing import Any, Literal, NamedTuple

from outpace.seams.in_place_of import in_place_of
from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.physical import is_folder, mode_of

Use = Literal["read", "write", "change", "folder"]
"""``folder``: new files are written into it, and their paths are given back"""

LARGE = 64 << 20
"""bytes above which a file that may be changed in place is not copied for a library to read"""


class Row(NamedTuple):
    """A call of a library that takes a path."""

    module: str
    call: str
    position: int
    keyword: str
    use: Use


ROWS = (
    # Below torch.save: that one another seam may wrap, and put back as it found it.
    Row("torch", "serialization._open_zipfile_writer", 0, "name_or_buffer", "write"),
    Row("torch", "_C.PyTorchFileWriter", 0, "file_name", "write"),
    Row("torch", "load", 0, "f", "read"),
    Row("torch", "jit.save", 1, "f", "write"),
    Row("torch", "jit._script.ScriptModule.save", 1, "f", "write"),
    Row("torch", "jit._script.RecursiveScriptModule.save", 1, "f", "write"),
    Row("torch", "jit.load", 0, "f", "read"),
    Row("safetensors.torch", "serialize_file", 1, "filename", "write"),
    Row("safetensors.torch", "safe_open", 0, "filename", "read"),
    Row("safetensors.numpy", "serialize_file", 1, "filename", "write"),
    Row("safetensors.numpy", "safe_open", 0, "filename", "read"),
    Row("safetensors", "safe_open", 0, "filename", "read"),
    Row("pyarrow", "memory_map", 0, "path", "read"),
    Row("pyarrow.parquet", "read_table", 0, "source", "read"),
    Row("pyarrow.parquet.core", "ParquetWriter.__init__", 1, "where", "write"),
    Row("pyarrow.parquet.core", "ParquetFile.__init__", 1, "source", "read"),
    Row("pyarrow.csv", "write_csv", 1, "output_file", "write"),
    Row("pyarrow.csv", "read_csv", 0, "input_file", "read"),
    Row("pyarrow.feather", "write_feather", 1, "dest", "write"),
    Row("pyarrow.feather", "read_table", 0, "source", "read"),
    Row("cv2", "imwrite", 0, "filename", "write"),
    Row("cv2", "imread", 0, "filename", "read"),
    # What save_pretrained of a tokenizer calls, as Transformers' Trainer does with each checkpoint.
    Row("tokenizers", "Tokenizer.save", 1, "path", "write"),
    Row("tokenizers", "Tokenizer.from_file", 0, "path", "read"),
    Row("tokenizers", "Tokenizer.train", 1, "files", "read"),
    Row("tokenizers.models", "Model.save", 1, "folder", "folder"),
    Row("tokenizers.models", "BPE.from_file", 0, "vocab", "read"),
    Row("tokenizers.models", "BPE.from_file", 1, "merges", "read"),
    Row("tokenizers.models", "WordPiece.from_file", 0, "vocab", "read"),
    Row("tokenizers.models", "WordLevel.from_file", 0, "vocab", "read"),
    Row("sentencepiece", "SentencePieceProcessor.LoadFromFile", 1, "arg", "read"),
    *(
        Row("polars", f"DataFrame.write_{kind}", 1, "file", "write")
        for kind in ("csv", "parquet", "ipc", "json", "ndjson")
    ),
    *(
        Row("polars", f"LazyFrame.sink_{kind}", 1, "path", "write")
        for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
    *(
        Row("polars", f"{how}_{kind}", 0, "source", "read")
        for how in ("read", "scan")
        for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
    Row("polars", "read_json", 0, "source", "read"),
)
FLAGS = {"write": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "change": os.O_RDWR | os.O_CREAT}


def place_for(overlay: Overlay, path: Any, use: Use) -> Any:
    """The place of a path's bytes, of each where there are several; what is no path is given back."""
    if type(path) in (list, tuple):
        return type(path)(place_for(overlay, each, use) for each in path)
    if not isinstance(path, str | bytes | os.PathLike):
        return path
    if use == "read":
        return overlay.readable(path) if overlay.size[0] else path
    if use == "folder":
        return _folder(overlay, path)
    place = overlay.opened(overlay.canonical(overlay.text(path)), FLAGS[use])
    return os.fsencode(place) if isinstance(path, bytes) else place


def _taking_place(overlay: Overlay, call: Any, row: Row) -> Any:
    @functools.wraps(call)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        if len(args) > row.position:
            place = place_for(overlay, args[row.position], row.use)
            args = (*args[: row.position], place, *args[row.position + 1 :])
        elif row.keyword in kwargs:
            kwargs[row.keyword] = place_for(overlay, kwargs[row.keyword], row.use)
        found = call(*args, **kwargs)
        return [_written(overlay, each) for each in found] if row.use == "folder" else found

    return redirected


def _folder(overlay: Overlay, path: Any) -> Any:
    """A folder's place in the tree; itself where the target has none, and the call is to say so."""
    folder = overlay.final(overlay.canonical(overlay.text(path)))
    if overlay.passes(folder) or not is_folder(overlay.place(folder)):
        return path
    overlay.make_folders(folder)
    return overlay.tree + folder


def _written(overlay: Overlay, place: str) -> str:
    """The path as the target knows it of a file that a library wrote."""
    path = overlay.virtual(place)
    if path != place:
        overlay.note("w", path)
    return path


def _connect(overlay: Overlay, connect: Any) -> Any:
    """``sqlite3.connect``: a large database, and one that may not be changed, is opened for reading only; a
    small one is copied.
    """

    @functools.wraps(connect)
    def redirected(database: Any, *args: Any, **kwargs: Any) -> Any:
        text = os.fspath(database) if isinstance(database, os.PathLike) else database
        if kwargs.get("uri") or text in ("", b"", ":memory:") or not isinstance(text, str | bytes):
            return connect(database, *args, **kwargs)
        if _is_only_read(overlay, text):
            from urllib.parse import quote

            return connect(f"file:{quote(os.fsdecode(text))}?mode=ro", *args, **kwargs, uri=True)
        return connect(place_for(overlay, text, "change"), *args, **kwargs)

    return redirected


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
        if "model_prefix" in kwargs and "model_writer" not in kwargs:
            prefix = os.fspath(kwargs["model_prefix"])
            places = [place_for(overlay, prefix + end, "write") for end in (".vocab", ".model")]
            kwargs["model_prefix"] = places[-1].removesuffix(".model")
        return train(**kwargs)

    return redirected


def _from_file(overlay: Overlay, call: Any) -> Any:
    """``torch.from_file``: only a map that is shared changes the file."""

    @functools.wraps(call)
    def redirected(filename: Any, shared: bool | None = None, *args: Any, **kwargs: Any) -> Any:
        place = place_for(overlay, filename, "change" if shared else "read")
        return call(place, shared, *args, **kwargs)

    return redirected


def _lmdb_open(overlay: Overlay, call: Any) -> Any:
    """``lmdb.open``: who only reads writes a file of locks all the same."""

    @functools.wraps(call)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("readonly"):
            kwargs["lock"] = False
        return call(*args, **kwargs)

    return redirected


def _own(overlay: Overlay, path: Any) -> str | None:
    """Where a file of the user's lies that is there, and is none of those that the target may write."""
    found = overlay.final(overlay.canonical(overlay.text(path)))
    place = overlay.place(found)
    if place != found or overlay.passes(found) or mode_of(place) is None:
        return None
    return place


def _is_large(overlay: Overlay, path: Any) -> bool:
    place = _own(overlay, path)
    return place is not None and os.stat(place).st_size > LARGE


def _is_only_read(overlay: Overlay, path: Any) -> bool:
    place = _own(overlay, path)
    return place is not None and (os.stat(place).st_size > LARGE or not os.access(place, os.W_OK))


SPECIAL: dict[tuple[str, str], Callable[[Overlay, Any], Any]] = {
    ("sqlite3", "connect"): _connect,
    ("sqlite3.dbapi2", "connect"): _connect,
    ("numpy", "memmap.__new__"): _memmap,
    ("h5py", "File.__init__"): _h5_file,
    ("pyarrow", "OSFile"): _os_file,
    ("soundfile", "SoundFile.__init__"): _sound_file,
    ("sentencepiece", "SentencePieceTrainer._Train"): _train_pieces,
    ("torch", "from_file"): _from_file,
    ("lmdb", "open"): _lmdb_open,
}
MODULES = frozenset([row.module for row in ROWS] + [module for module, _ in SPECIAL])


class _Finder:
    """Changes a library when it was imported."""

    def __init__(self, imported: Callable[[str], None]) -> None:
        self.imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the others find, with our change after the module has run."""
        if name not in MODULES:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(name, spec.loader)
                return spec
        return None

    def _follow(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self.imported(name)

        loader.exec_module = exec_module


def install(overlay: Overlay) -> Callable[[], None]:
    """Change the libraries, those not imported yet when they are; the function that undoes it."""
    undone: list[tuple[Any, str, Any]] = []
    """owner, name, and what it had there itself"""

    def put(name: str, dotted: str, make: Callable[[Overlay, Any], Any]) -> None:
        *way, last = dotted.split(".")
        owner: Any = sys.modules[name]
        for part in way:
            owner = getattr(owner, part, None)
        original = getattr(owner, last, None)
        if original is not None:
            changed = make(overlay, original)
            if isinstance(owner, ModuleType):
                changed = in_place_of(owner, last)(changed)
            else:
                changed.__module__, changed.__qualname__ = name, dotted  # as which it is pickled
            own = vars(owner).get(last)
            undone.append((owner, last, own))
            bound = isinstance(own, staticmethod | classmethod | ClassMethodDescriptorType)
            setattr(owner, last, staticmethod(changed) if bound else changed)

    def imported(name: str) -> None:
        for row in ROWS:
            if row.module == name:
                put(name, row.call, functools.partial(_of_row, row))
        for (module, dotted), make in SPECIAL.items():
            if module == name:
                put(name, dotted, make)

    finder = _Finder(imported)
    sys.meta_path.insert(0, finder)
    for name in MODULES & set(sys.modules):
        imported(name)

    def undo() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for owner, last, own in reversed(undone):
            if own is None:
                delattr(owner, last)
            else:
                setattr(owner, last, own)

    return undo


def _of_row(row: Row, overlay: Overlay, call: Any) -> Any:
    return _taking_place(overlay, call, row)

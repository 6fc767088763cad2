"""Reading and writing records: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from outpace.errors import SessionError

T = TypeVar("T")
SCHEMA = 1


class Schema(msgspec.Struct, frozen=True):
    """What of a record is looked at first: in another schema the rest may be anything."""

    schema: int = SCHEMA


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: into a temporary neighbour that then takes its name.

    Of a link, what it points to is written.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all, for another process to read; a crash of the machine may lose
    it.
    """
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


def _umask() -> int:
    """Permissions that the user leaves out of new files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def to_json(record: object) -> str:
    """A record as indented JSON; NaN and infinity become null, what is no text a question mark."""
    try:
        encoded = msgspec.json.encode(record)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_as_text(msgspec.to_builtins(record)))
    return msgspec.json.format(encoded, indent=2).decode()


def _as_text(value: Any) -> Any:
    """Plain values without the bytes that Python keeps of words that are not in UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(each) for each in value]
    return value


def write_json(path: Path, record: object) -> None:
    """Write a record as JSON, atomically."""
    write_text(path, to_json(record) + "\n")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a record; raise SessionError that names the file and what is wrong with it."""
    try:
        encoded = path.read_bytes()
        schema = msgspec.json.decode(encoded, type=Schema).schema
        if schema != SCHEMA:
            raise SessionError(
                f"{path} has schema {schema}; this outpace reads schema {SCHEMA}",
                "read it by the version of outpace that wrote it, or make it anew",
            )
        return msgspec.json.decode(encoded, type=kind)
    except FileNotFoundError:
        raise SessionError(f"{path} does not exist", "name a session folder or file") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SessionError(
            f"{path} cannot be read: {error}", "name another session, or make it anew"
        ) from error
